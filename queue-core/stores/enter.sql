-- tenant, locked: a transaction that enqueues for a tenant holds on to its place, so that a move waits for its end.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: after a move the row says that it has left, or has another epoch, and nothing is found. A move that comes meanwhile waits.
select true
from queue.tenant t
where t.schema = $1 and t.key = $2 and t.epoch = $3 and t.here
for share
