-- Sets the capacity of the queue $1 to $2 waiting jobs, or removes the capacity if $2 is null.
-- $1 queue  $2 capacity or null
-- Safe: writes one row of capacity, and marks the queue's lanes. A transaction that counted under the old capacity has locked the row,
-- and the next transaction counts again.
select queue.set_capacity($1, $2)
