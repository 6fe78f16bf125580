-- waiter: notifies waiting clients that jobs have finished. Returns a row if any client is waiting.
-- Safe: runs after the commit that ended the jobs. A client that registers later queries its jobs afterwards and sees the result. A lost
-- notification only causes a delay, because clients also poll. A transaction that only notifies writes nothing, so the server's global
-- notification lock is not held during a WAL flush.
select queue.notify('over', '')::text
where exists (select from queue.waiter w where w.expires_at > pg_catalog.now())
