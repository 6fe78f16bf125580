-- child, looked at: what the child that the step $2 of the job $1 has spawned came to; the state is null if it is not over. No row if there is none.
-- $1 parent  $2 the step
-- Safe: reads only. What is told of a child is told once, so every attempt of the parent reads the same.
select c.id, c.state, c.attempts, c.output::text as output, c.error
from queue.child c
where c.parent = $1 and c.name = $2
