-- waiter -> nothing: the process $1 waits for no job any more.
-- $1 waiter
delete from queue.waiter
where id = $1
