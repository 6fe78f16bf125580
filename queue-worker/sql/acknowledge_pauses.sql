-- worker: acknowledges that this worker no longer starts jobs covered by pauses up to number $2.
-- $1 worker  $2 number of the last pause that the worker has loaded
-- Safe: the worker acknowledges only after it has closed the lanes, finished its open claims and released the jobs that had not started.
-- Operators never write a worker's row, because an operator's open transaction would block the worker's heartbeat.
update queue.worker
set paused_seen = $2
where id = $1 and paused_seen < $2
