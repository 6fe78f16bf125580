-- Returns up to $2 lane rows that are marked for deletion and have been unused for $1 seconds, lowest scan position first. A returned row
-- can be deleted unless its lane has jobs. Each row contains the lane id stored with the lane's jobs. For a quarantine lane, this is the
-- id of the plain lane with the same queue, job type and priority. Each row also contains the range of job ids to scan.
-- $1 time in seconds  $2 maximum number of rows
-- Safe: read-only. The jobs are scanned later with newer snapshots, which see every job that was enqueued with a returned row.
select l.lane, l.leaving::text as leaving, queue.lane_id(l.queue, l.job_type, l.priority, false) as plain, l.walked, l.above
from queue.lane l
where l.above is not null
  and l.since < now() - $1 * interval '1 second'
order by l.walked
limit $2
