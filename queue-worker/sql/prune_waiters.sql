-- waiter -> nothing: rows of processes that ended without taking theirs away.
-- Safe: a process that lives renews its row long before it expires, and makes a new one if it is gone. Rows that others have locked are passed
-- over.
delete from queue.waiter
where id = any (array(
  select w.id
  from queue.waiter w
  where w.expires_at < now()
  for update skip locked
))
