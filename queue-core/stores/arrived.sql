-- tenant -> tenant: records that the moving tenant $2 has arrived in this store in the epoch $3. Returns true, or no row if the arrival
-- is already recorded.
-- $1 schema of the store  $2 key  $3 epoch of the move
-- Safe: the same transaction holds the tenant's ordering keys, so no other transaction enqueues for the tenant before the keys are held.
-- Of two concurrent calls, the second waits and then changes nothing. If the tenant has left this store within the last second, deleting
-- the row of `leaving` lets transactions begin here at once.
with opened as (
  delete from queue.leaving l
  where l.schema = $1 and l.key = $2
)
update queue.tenant t
set here = true
where t.schema = $1 and t.key = $2 and t.epoch = $3 and not t.here
returning true
