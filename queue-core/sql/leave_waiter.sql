-- waiter -> nothing: the process $1 waits for no job any more.
-- $1 waiter
delete from queue.waiter
where id = $1  -- guard: its own row [id = $1 => $1::uuid is not null]
