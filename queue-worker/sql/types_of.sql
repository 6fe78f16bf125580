-- Returns the number of jobs in $1 for each pair of queue and job type.
-- $1 ids
select l.queue, queue.type_of(l.job_type) as job_type, count(*) as jobs
from unnest($1::bigint[]) i (id)
cross join lateral (select j.lane from queue.job j where j.id = i.id offset 0) j
cross join lateral (select l.queue, l.job_type from queue.lane l where l.lane = j.lane limit 1) l
group by l.queue, queue.type_of(l.job_type)
