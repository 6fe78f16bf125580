-- worker, idle -> nothing: deletes a worker that shuts down gracefully, and its requests for notifications. Other workers recover the
-- leases that the worker still holds, as if its heartbeat had expired.
-- $1 worker
with woken as (
  delete from queue.idle
  where worker = $1
)
delete from queue.worker
where id = $1
