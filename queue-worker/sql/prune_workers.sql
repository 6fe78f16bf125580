-- worker, idle -> nothing: rows of processes that have been silent for an hour and hold nothing any more.
with gone as (
  delete from queue.worker w
  -- guard: only after an hour [w.expires_at < now() - interval '1 hour' and ]; only who holds nothing [ and .. = w.id)]
  -- guard: who holds something itself [ where l.worker = w.id]
  where w.expires_at < now() - interval '1 hour' and not exists (select from queue.lease l where l.worker = w.id)
)
delete from queue.idle i
-- guard: idle rows of those that are gone; idle rows by worker [w.id = i.worker and ]; idle rows of the silent too [ and w.expires_at > now()]
where not exists (select from queue.worker w where w.id = i.worker and w.expires_at > now())
