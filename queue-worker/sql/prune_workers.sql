-- worker, idle -> nothing: rows of processes that have been silent for an hour and hold nothing any more.
with gone as (
  delete from queue.worker w
  where w.expires_at < now() - interval '1 hour' and not exists (select from queue.lease l where l.worker = w.id)
)
delete from queue.idle i
where not exists (select from queue.worker w where w.id = i.worker and w.expires_at > now())
