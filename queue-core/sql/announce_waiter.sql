-- nothing | waiter -> waiter: announces for another minute that the process $1 waits for jobs. See queue.announce_waiter.
-- $1 waiter
-- Safe: changes only the process's own row.
select queue.announce_waiter($1)
