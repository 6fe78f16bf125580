-- waiter -> nothing: the process $1 waits for no job any more. See queue.leave_waiter.
-- $1 waiter
-- Safe: its own row.
select queue.leave_waiter($1)
