-- worker: acknowledges that jobs covered by the pauses up to number $2 no longer start on this worker.
-- $1 worker  $2 number of the last pause that the worker has loaded
-- Safe: the worker itself acknowledges, after it has closed the lanes, finished its open claims and given back jobs that had not started. An
-- operator never writes a worker's row, because an open transaction would block the worker's heartbeat.
update queue.worker
set paused_seen = $2
where id = $1 and paused_seen < $2
