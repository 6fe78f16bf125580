-- Returns the last epoch of a tenant that is recorded in a store.
-- $1 schema of the store  $2 key
select t.epoch
from queue.tenant t
where t.schema = $1 and t.key = $2
