-- tenant, locked: locks the row of the tenant $2 for a transaction that enqueues for the tenant. A move of the tenant waits for the end
-- of the transaction. Returns true, or no row if the tenant is not in this store in the epoch $3 or is about to leave the store.
-- $1 schema of the store  $2 key  $3 epoch
-- Safe: after a move, the row is marked as left or has a later epoch than $3, so no row is returned.
select true
from queue.tenant t
where t.schema = $1 and t.key = $2 and t.epoch = $3 and t.here
  and not exists (select from queue.leaving l where l.schema = t.schema and l.key = t.key and l.until > statement_timestamp())
for share of t
