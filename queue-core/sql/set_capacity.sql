-- Sets the capacity of the queue $1 to $2 waiting jobs, or removes the capacity if $2 is null.
-- $1 queue  $2 capacity or null
-- Safe: writes one row of capacity, and sets has_capacity on the queue's lanes. A transaction that has counted the queue's jobs under the
-- old capacity keeps the row locked until it ends, unless the row was already locked at the time of the count. The next enqueue after the
-- change counts again.
select queue.set_capacity($1, $2)
