-- nothing | tenant -> tenant: records that a tenant has left in this epoch. Waits for transactions that enqueue for it in an earlier one.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: once this is committed, no transaction enqueues for the tenant here in an earlier epoch. A later epoch is not changed.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, false)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = false
where t.epoch < excluded.epoch
