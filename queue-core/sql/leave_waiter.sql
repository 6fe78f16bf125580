-- waiter -> nothing: removes the process $1 from the waiters, because it has stopped waiting. See queue.leave_waiter.
-- $1 id of the process
-- Safe: deletes only the row of the process.
select queue.leave_waiter($1)
