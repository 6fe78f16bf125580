-- place -> place: records that no process can enqueue any more into the store that a tenant leaves.
-- $1 key  $2 epoch of the move
update queue.place p
set is_fenced = true
where p.key = $1 and p.epoch = $2 and p.leaves is not null
