-- worker: whoever is said to live for longer than a heartbeat lasts is silent one ttl from now, unless it beats. Its row was written by a clock
-- that was ahead of this one: the database's has stepped back, and what a dead worker holds would wait until that time comes again.
-- Safe: the living beat three times a ttl, each time by the clock of now. Passes over rows that others hold, and waits for nobody.
update queue.worker
set expires_at = now() + ttl
where ctid = any (array(
  select w.ctid
  from queue.worker w
  where w.expires_at > now() + w.ttl
  for update skip locked
))
