-- worker -> nothing: a clean end. What it still holds is recovered by others as that of a silent worker.
-- $1 worker
with woken as (
  delete from queue.idle
  where worker = $1
)
delete from queue.worker
where id = $1
