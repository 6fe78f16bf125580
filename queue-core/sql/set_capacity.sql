-- Sets the capacity of the queue $1 to $2 waiting jobs, or removes the capacity if $2 is null.
-- $1 queue  $2 capacity or null
-- Safe: writes one row of capacity, and marks the queue's lanes. A transaction that counted the queue's jobs under the old capacity holds
-- a lock on the row until it ends, unless another session had locked it. The next enqueue after the change counts again.
select queue.set_capacity($1, $2)
