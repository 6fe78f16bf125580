-- dead -> ready | blocked: those of the jobs $1 that are dead letters; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.requeue_all($1) c (id)
