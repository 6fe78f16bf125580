-- ready | scheduled | blocked -> done, cancelled: those of the jobs $1 that wait and that nobody holds; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.cancel_waiting_all($1) c (id)
