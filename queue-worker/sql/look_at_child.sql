-- Returns the result of the child that the step $2 of the job $1 spawned. The state is null until the child has ended. Returns no row if there is
-- no such child.
-- $1 parent  $2 step
-- Safe: read-only. The result of a child is written once, so every attempt of the parent reads the same result.
select c.id, c.state, c.attempts, c.output::text as output, c.error
from queue.child c
where c.parent = $1 and c.name = $2
