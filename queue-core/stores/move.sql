-- place -> place: starts to move the tenant $1 to the open store $2. Returns the epoch of the move, or no row if the move cannot start.
-- $1 key  $2 new store
-- Safe: a tenant that is already being moved is not changed. Of two concurrent calls, the second call finds the move that the first call
-- has started, and changes nothing.
update queue.place p
set leaves = p.store, store = s.name, epoch = p.epoch + 1, is_fenced = false, moved_at = now()
from queue.store s
where p.key = $1 and s.name = $2 and p.leaves is null and p.store <> s.name and s.is_open
returning p.epoch
