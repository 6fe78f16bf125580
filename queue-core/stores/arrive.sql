-- nothing | tenant -> tenant: a tenant is here by this epoch, which is heard of for the first time.
-- $1 schema of the store  $2 key  $3 epoch
-- Not in a transaction that goes on: it waits for those that hold on to the row, and others for it.
-- Safe: home gives out each epoch for one store, and whoever knows of a later one has it written here before it relies on it.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, true)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = true
where t.epoch < excluded.epoch
