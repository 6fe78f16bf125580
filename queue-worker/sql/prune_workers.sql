-- worker, idle -> nothing: deletes workers without leases whose heartbeat expired an hour ago, or that are among $1.
-- $1 workers with an expired heartbeat whose jobs were recovered; workers that had no jobs are kept for the hour, so that operators can see them
-- Safe: locked rows are skipped and deleted the next time.
with gone as (
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
