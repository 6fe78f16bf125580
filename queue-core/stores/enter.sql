-- tenant, locked: locks the place of a tenant for a transaction that enqueues for it, so that a move waits for the transaction's end.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: after a move, the row has left or has another epoch, and no row is returned. A move that begins meanwhile waits.
select true
from queue.tenant t
where t.schema = $1 and t.key = $2 and t.epoch = $3 and t.here
for share
