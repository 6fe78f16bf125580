-- worker, idle -> nothing: rows of processes that have been silent for $1 seconds and hold nothing any more.
-- $1 seconds: an hour of one that held nothing when it fell silent, so that it is known who was there; none once its jobs were recovered
-- Safe: rows that others have locked are passed over; they go the next time.
with gone as (
  delete from queue.worker
  where id = any (array(
    select w.id
    from queue.worker w
    where w.expires_at < now() - $1 * interval '1 second' and not exists (select from queue.lease l where l.worker = w.id)
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
