-- Gives the queue $1 a capacity of $2 waiting jobs, or takes it away if that is null.
-- $1 queue  $2 capacity, or null
-- Safe: one row; who has counted under the old capacity has locked it, and the next one counts anew.
select queue.set_capacity($1, $2)
