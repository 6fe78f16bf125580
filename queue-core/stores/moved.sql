-- place -> place: ends a move.
-- $1 key  $2 epoch of the move
-- Safe: only if it is fenced, and in the same epoch.
update queue.place p
set leaves = null, is_fenced = false
where p.key = $1 and p.epoch = $2 and p.is_fenced
