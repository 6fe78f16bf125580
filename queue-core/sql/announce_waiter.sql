-- nothing | waiter -> waiter: announces that the process $1 waits for jobs to finish. The announcement is valid for one minute. See
-- queue.announce_waiter.
-- $1 id of the process
-- Safe: changes only the row of the process.
select queue.announce_waiter($1)
