-- place -> place: records that the old store of a moving tenant rejects enqueues for the tenant.
-- $1 key  $2 epoch of the move
update queue.place p
set is_fenced = true
where p.key = $1 and p.epoch = $2 and p.leaves is not null
