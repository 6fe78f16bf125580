-- Returns the id, state, attempts, output (as JSON text) and error of the child that step $2 of job $1 spawned. The state is null until
-- the child has ended. Returns no row if the step has no child.
-- $1 parent  $2 step
-- Safe: read-only. A child's result is written once, so every attempt of the parent reads the same result.
select c.id, c.state, c.attempts, c.output::text as output, c.error
from queue.child c
where c.parent = $1 and c.name = $2
