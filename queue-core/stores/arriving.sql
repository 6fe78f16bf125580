-- tenant, locked: locks the row of the moving tenant $2, so that the same transaction can hold ordering keys for the tenant. Returns true,
-- or no row if the tenant has arrived in this store or if the move has ended.
-- $1 schema of the store  $2 key  $3 epoch of the move
select true
from queue.tenant t
where t.schema = $1 and t.key = $2 and t.epoch = $3 and not t.here
for update
