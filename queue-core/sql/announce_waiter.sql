-- nothing | waiter -> waiter: the process $1 waits for jobs, for another minute. See queue.announce_waiter.
-- $1 waiter
-- Safe: its own row.
select queue.announce_waiter($1)
