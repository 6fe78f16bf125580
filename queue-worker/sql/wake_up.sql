-- idle -> nothing: withdraws a worker's request for notifications. A worker with jobs polls, so producers need not notify it.
-- $1 worker
delete from queue.idle
where worker = $1
