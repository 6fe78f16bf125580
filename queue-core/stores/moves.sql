-- Returns one row for each tenant that is being moved, longest-running move first. `store` is the new store, and `leaves` is the old
-- store.
-- $1 maximum number of moves
select p.key, p.store, p.epoch, p.leaves, p.is_fenced, p.moved_at
from queue.place p
where p.leaves is not null
order by p.moved_at, p.key
limit $1
