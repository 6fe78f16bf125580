-- waiter -> nothing: deletes the rows of processes that ended without deleting their row.
-- Safe: a live process renews its row long before the row expires, and inserts a new row if the row is gone. Locked rows are skipped.
delete from queue.waiter
where id = any (array(
  select w.id
  from queue.waiter w
  where w.expires_at < now()
  for update skip locked
))
