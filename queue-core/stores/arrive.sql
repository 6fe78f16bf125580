-- nothing | tenant -> tenant: records that the tenant $2 is in this store in the epoch $3. Does nothing if this or a later epoch is
-- already recorded.
-- $1 schema of the store  $2 key  $3 epoch in which the tenant was placed in this store
-- Runs in a separate transaction, because the statement waits for all transactions that have locked the row. If two transactions that
-- have locked the row executed the statement, they would deadlock.
-- Safe: the home database assigns each epoch to one store. A process that reads a later epoch from the home database records that epoch
-- in this row before it uses the store.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, true)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = true
where t.epoch < excluded.epoch
