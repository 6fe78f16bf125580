-- Returns the last epoch recorded in a store for a tenant, or no row if no epoch is recorded.
-- $1 schema of the store  $2 key
select t.epoch
from queue.tenant t
where t.schema = $1 and t.key = $2
