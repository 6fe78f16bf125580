-- ready | scheduled -> the same in the lane of the priority $2: those of the jobs $1 that wait and that nobody holds; returns them.
-- $1 ids  $2 priority
-- Safe: see the function.
select c.id
from queue.set_priority_all($1, $2::int) c (id)
