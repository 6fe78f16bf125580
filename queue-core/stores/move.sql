-- place -> place: begins to move a tenant into another, open store.
-- $1 key  $2 the store
-- Safe: a move in progress is not begun again; of two concurrent calls, the second finds the move of the first.
update queue.place p
set leaves = p.store, store = s.name, epoch = p.epoch + 1, is_fenced = false, moved_at = now()
from queue.store s
where p.key = $1 and s.name = $2 and p.leaves is null and p.store <> s.name and s.is_open
returning p.epoch
