-- worker: limits heartbeats to one TTL from now. A later expiry was written by a clock ahead of the present one: the database's clock has been set
-- back, and the jobs of a dead worker would wait until that time.
-- Safe: a living worker sends three heartbeats per TTL, each with the present time. Locked rows are skipped, and no lock is waited for.
update queue.worker
set expires_at = now() + ttl
where ctid = any (array(
  select w.ctid
  from queue.worker w
  where w.expires_at > now() + w.ttl
  for update skip locked
))
