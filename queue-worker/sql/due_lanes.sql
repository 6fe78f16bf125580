-- Returns up to $2 lane rows that have been unused for $1 seconds and may be deleted unless the lane has jobs, least recently scanned first. Each
-- row contains the lane id stored with the lane's jobs, even if the lane is solo. The row also contains the range of ids in which such a job may
-- be.
-- $1 time in seconds  $2 maximum number of rows
-- Safe: read-only. The jobs are scanned later with newer snapshots, which see every relevant job.
select l.lane, l.leaving::text as leaving, queue.lane_id(l.queue, l.job_type, l.priority, false) as plain, l.walked, l.above
from queue.lane l
where l.above is not null
  and l.since < now() - $1 * interval '1 second'
order by l.walked
limit $2
