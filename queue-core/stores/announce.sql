-- nothing | leaving -> leaving: announces that the tenant $2 is about to leave this store. For one second, no transaction that enqueues for
-- the tenant can begin here. Returns true, or no row if a process has announced the move within the last two seconds.
-- $1 schema of the store  $2 key of the tenant
-- Safe: if the process that moves the tenant is killed, the row has no effect after that second. In the following second, no process can
-- announce the move again, so transactions can begin even if several processes advance the move. Citus permits only immutable operators in
-- this condition.
insert into queue.leaving as l (schema, key, until)
values ($1, $2, now() + interval '1 second')
on conflict (schema, key) do update
set until = excluded.until
where excluded.until - l.until > interval '2 seconds'
returning true
