-- idle -> nothing: withdraws a worker's request for notifications. A worker that has jobs polls, so producers need not notify that
-- worker.
-- $1 worker
delete from queue.idle
where worker = $1
