-- nothing | tenant -> tenant: records that a tenant is here in this epoch, unless a later one is recorded.
-- $1 schema of the store  $2 key  $3 epoch
-- Run in a transaction of its own: it waits for transactions that have locked the row, and others wait for it.
-- Safe: the home database assigns each epoch to one store, and a process that learns of a later one has it recorded here before relying on it.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, true)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = true
where t.epoch < excluded.epoch
