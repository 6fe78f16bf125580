-- waiter -> nothing: withdraws the announcement of the process $1, which has stopped waiting. See queue.leave_waiter.
-- $1 id of the process
-- Safe: deletes only the row of the process.
select queue.leave_waiter($1)
