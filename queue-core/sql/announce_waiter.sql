-- nothing | waiter -> waiter: announces that the process $1 waits for jobs. The announcement is valid for one minute. See queue.announce_waiter.
-- $1 waiter
-- Safe: changes only the process's own row.
select queue.announce_waiter($1)
