-- place -> place: a tenant begins to move into another store, which is open.
-- $1 key  $2 the store
-- Safe: a move that has not ended is not begun again; of two at once the second finds the first.
update queue.place p
set leaves = p.store, store = s.name, epoch = p.epoch + 1, is_fenced = false, moved_at = now()
from queue.store s
where p.key = $1 and s.name = $2 and p.leaves is null and p.store <> s.name and s.is_open
returning p.epoch
