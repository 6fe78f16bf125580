-- place -> place: records the end of a tenant's move.
-- $1 key  $2 epoch of the move
-- Safe: the row is changed only if the old store is fenced and the epoch is unchanged.
update queue.place p
set leaves = null, is_fenced = false
where p.key = $1 and p.epoch = $2 and p.is_fenced
