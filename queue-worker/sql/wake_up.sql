-- idle -> nothing: this worker has enough to do and looks by itself; producers need not notify it.
-- $1 worker
delete from queue.idle
where worker = $1
