-- waiter -> nothing: withdraws the announcement of the process $1, which no longer waits for any job. See queue.leave_waiter.
-- $1 waiter
-- Safe: deletes only the process's own row.
select queue.leave_waiter($1)
