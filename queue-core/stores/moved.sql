-- place -> place: a move has ended.
-- $1 key  $2 epoch of the move
-- Safe: only after it was fenced, and by the epoch of that.
update queue.place p
set leaves = null, is_fenced = false
where p.key = $1 and p.epoch = $2 and p.is_fenced
