-- lease, marked: those of the jobs $1 that are running are to be cancelled; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.call_off_all($1) c (id)
