-- waiter, asked for: tells those who wait for jobs that some are over; returns a row if anybody waits.
-- Safe: to be sent after the commit that ended them. Whoever announces itself later looks at its jobs after that, and sees them. A notification
-- that is lost costs time only, for waiters look now and then unasked. A transaction that only notifies writes nothing, so the lock that
-- notifying takes is held for no flush of the disk.
select queue.notify('over', '')::text
where exists (select from queue.waiter w where w.expires_at > pg_catalog.now())
