-- Returns the children of the job $1, without their outputs.
-- $1 id
-- Safe: read-only.
select c.name, c.id, c.state, c.now
from queue.children($1) c
