-- Returns the store of a tenant.
-- $1 key
select p.store, p.epoch, p.leaves, p.is_fenced, p.moved_at
from queue.place p
where p.key = $1
