-- Returns the store of a tenant and the state of the tenant's last move, or no row if the tenant is not in any store. `leaves` is the
-- store that the tenant is leaving, or null if no move is in progress. `moved_at` is null if the tenant was never moved.
-- $1 key
select p.store, p.epoch, p.leaves, p.is_fenced, p.moved_at
from queue.place p
where p.key = $1
