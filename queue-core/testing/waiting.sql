-- Returns one row for each job type, with the number of ready, scheduled and blocked jobs of the type. Used in tests.
select j.job_type, count(*) as jobs
from queue.jobs j
where j.state in ('ready', 'scheduled', 'blocked')
group by j.job_type
order by j.job_type
