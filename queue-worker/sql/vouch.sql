-- worker: acknowledges that no job covered by the pauses up to $2 starts on this worker any more.
-- $1 worker  $2 number of the last pause that it has loaded
-- Safe: the worker itself acknowledges, after it has closed the lanes, landed its claims and given back jobs that had not started. An operator never
-- writes a worker's row: an open transaction would block that worker's heartbeat.
update queue.worker
set paused_seen = $2
where id = $1 and paused_seen < $2
