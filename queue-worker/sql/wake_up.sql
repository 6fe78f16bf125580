-- idle -> nothing: this worker has enough to do and looks by itself; producers need not notify it.
-- $1 worker
delete from queue.idle
where worker = $1  -- guard: its own rows [worker = $1 => $1::uuid is not null]
