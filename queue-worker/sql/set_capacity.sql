-- Bounds the queue $1 to $2 waiting jobs, or no more if that is null.
-- $1 queue  $2 capacity, or null
-- Safe: one row; who has counted under the old capacity has locked it, and the next one counts anew.
select queue.set_capacity($1, $2)
