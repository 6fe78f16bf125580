-- worker: says that of what the pauses up to $2 cover nothing begins there any more.
-- $1 worker  $2 the number of the last pause that it has read
-- Safe: the worker itself says so, after it has left their lanes alone, landed its claims and given back what it had not begun. An operator never
-- writes a worker's row: its open transaction would keep that worker's heartbeat waiting.
update queue.worker
set paused_seen = $2
where id = $1 and paused_seen < $2
