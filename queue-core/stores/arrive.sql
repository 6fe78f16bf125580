-- nothing | tenant -> tenant: records that the tenant $2 is in this store in the epoch $3, in which it was placed there. Does nothing if
-- this or a later epoch is already recorded.
-- $1 schema of the store  $2 key  $3 epoch
-- Runs in a separate transaction, because the statement waits for all transactions that have locked the row. Two such transactions would
-- deadlock if both executed it.
-- Safe: the home database assigns each epoch to one store. A process that reads a later epoch from the home database records that epoch
-- in this row before it uses the store.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, true)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = true
where t.epoch < excluded.epoch
