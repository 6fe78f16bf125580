-- waiter -> nothing: deletes rows of processes that ended without deleting their own.
-- Safe: a living process renews its row long before it expires, and inserts a new one if it is gone. Locked rows are skipped.
delete from queue.waiter
where id = any (array(
  select w.id
  from queue.waiter w
  where w.expires_at < now()
  for update skip locked
))
