-- worker -> nothing: deletes a worker that shuts down gracefully. Other workers recover its remaining leases as if its heartbeat had
-- expired.
-- $1 worker
with woken as (
  delete from queue.idle
  where worker = $1
)
delete from queue.worker
where id = $1
