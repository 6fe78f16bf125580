-- dead -> nothing: those of the jobs $1 that are dead letters, with payload and failures; returns them.
-- $1 ids
-- Safe: see the function.
select c.id
from queue.discard_all($1) c (id)
