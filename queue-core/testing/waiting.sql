-- Returns the number of waiting jobs by type. Used in tests.
select j.job_type, count(*) as jobs
from queue.jobs j
where j.state in ('ready', 'scheduled', 'blocked')
group by j.job_type
order by j.job_type
