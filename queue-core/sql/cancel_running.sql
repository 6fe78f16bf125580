-- lease, marked: those of the jobs $1 that are running are cancelling from now on; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.cancel_running_all($1) c (id)
