-- Returns the tenants being moved, the longest-running move first.
-- $1 maximum number
select p.key, p.store, p.epoch, p.leaves, p.is_fenced, p.moved_at
from queue.place p
where p.leaves is not null
order by p.moved_at, p.key
limit $1
