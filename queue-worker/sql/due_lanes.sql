-- lane, read: up to $2 rows that were unused for a time and may be deleted unless the lane has jobs, least recently scanned first. Each row has the
-- lane id stored with its jobs, even if the lane is solo, and the range of ids in which such a job may be.
-- $1 time in seconds  $2 maximum number of rows
-- Safe: it only reads. Jobs are scanned later with newer snapshots, which see every relevant job.
select l.lane, l.leaving::text as leaving, queue.lane_id(l.queue, l.job_type, l.priority, false) as plain, l.walked, l.above
from queue.lane l
where l.above is not null
  and l.since < now() - $1 * interval '1 second'
order by l.walked
limit $2
