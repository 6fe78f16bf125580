-- waiter -> nothing: rows of processes that ended without taking theirs away.
-- Safe: a process that lives renews its row long before it expires, and makes a new one if it is gone.
delete from queue.waiter w
where w.expires_at < now()  -- guard: only once it has expired
