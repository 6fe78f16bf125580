-- lane, looked at: up to $2 rows that nobody used for a time, and that may go unless a job is of their lane: those that were looked through for
-- least first. Each with the lane that names its jobs, be it solo, and with the ids between which there may be such a job.
-- $1 the time in seconds  $2 how many at most
-- Safe: it only reads. Jobs are looked for under newer snapshots than this one's, and so all are seen that may be meant.
select l.lane, l.leaving::text as leaving, queue.lane_id(l.queue, l.job_type, l.priority, false) as plain, l.walked, l.above
from queue.lane l
where l.above is not null
  and l.since < now() - $1 * interval '1 second'
order by l.walked
limit $2
