-- nothing | tenant -> tenant: a tenant has left by this epoch. Waits for transactions that enqueue for it under an earlier one.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: once this is committed none enqueues for it here under an earlier epoch. It changes nothing of a later one.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, false)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = false
where t.epoch < excluded.epoch
