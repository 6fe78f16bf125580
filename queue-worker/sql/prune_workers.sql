-- worker, idle -> nothing: deletes expired workers that have no leases, if they are in $1 or expired more than an hour ago. Also
-- deletes the notification requests of expired workers.
-- $1 expired workers whose jobs were recovered; other expired workers are kept for an hour, so that operators can see them
-- Safe: locked rows are skipped and left for the next run.
with deleted as (
  delete from queue.worker
  where id = any (array(
    select w.id
    from queue.worker w
    where w.expires_at < now() and (w.id = any ($1) or w.expires_at < now() - interval '1 hour')
      and not exists (select from queue.lease l where l.worker = w.id)
    for update skip locked
  ))
)
delete from queue.idle
where ctid = any (array(
  select i.ctid
  from queue.idle i
  where not exists (select from queue.worker w where w.id = i.worker and w.expires_at > now())
  for update skip locked
))
