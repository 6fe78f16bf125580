-- nothing | tenant -> tenant: records that the tenant $2 is not in this store in the epoch $3: it has left the store, or has not arrived
-- yet. Waits for transactions that enqueue for the tenant in an earlier epoch.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: after the commit, no transaction enqueues for the tenant into this store in an earlier epoch. A row with this or a later epoch is
-- not changed.
insert into queue.tenant as t (schema, key, epoch, here)
values ($1, $2, $3, false)
on conflict (schema, key) do update
set epoch = excluded.epoch, here = false
where t.epoch < excluded.epoch
