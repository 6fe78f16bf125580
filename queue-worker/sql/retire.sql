-- worker -> nothing: deletes a worker that shuts down gracefully. Other workers recover the remaining leases, as they do after an expired
-- heartbeat.
-- $1 worker
with woken as (
  delete from queue.idle
  where worker = $1
)
delete from queue.worker
where id = $1
