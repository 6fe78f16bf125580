-- Sets the capacity of the queue $1 to $2 waiting jobs, or removes it if that is null.
-- $1 queue  $2 capacity or null
-- Safe: one row. A transaction that has counted under the old capacity holds its lock; the next one counts again.
select queue.set_capacity($1, $2)
