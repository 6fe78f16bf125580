-- idle -> nothing: withdraws a worker's request for notifications. A worker that has jobs polls by itself, so producers need not notify it.
-- $1 worker
delete from queue.idle
where worker = $1
