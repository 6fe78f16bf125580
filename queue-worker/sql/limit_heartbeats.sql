-- worker: reduces heartbeat expiries to at most one TTL from now. A later expiry was written before the database's clock was set back.
-- Without this statement, the jobs of a dead worker would not be recovered before that expiry.
-- Safe: a live worker sends three heartbeats per TTL, each with the current time. Locked rows are skipped, so the statement waits for no
-- row lock.
update queue.worker
set expires_at = now() + ttl
where ctid = any (array(
  select w.ctid
  from queue.worker w
  where w.expires_at > now() + w.ttl
  for update skip locked
))
