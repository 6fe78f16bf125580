-- scheduled -> ready: those of the jobs $1 that are scheduled and that nobody holds; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.run_now_all($1) c (id)
