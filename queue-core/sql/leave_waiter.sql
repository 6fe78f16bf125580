-- waiter -> nothing: withdraws the announcement of the process $1, which waits for no job any more. See queue.leave_waiter.
-- $1 waiter
-- Safe: deletes only the process's own row.
select queue.leave_waiter($1)
