-- Sets the capacity of the queue $1 to $2 waiting jobs, or removes the capacity if $2 is null.
-- $1 queue  $2 capacity or null
-- Safe: writes one row. A transaction that has counted under the old capacity holds its lock, and the next transaction counts again.
select queue.set_capacity($1, $2)
