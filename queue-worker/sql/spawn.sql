-- nothing -> ready | scheduled | blocked: spawns a child of a leased job, and journals the step. Returns the child's id, or null if the
-- call was rejected.
-- $1 token  $2 parent  $3 attempt  $4 step  $5 job type  $6 payload  $7 options, both as JSON text
-- Safe: fenced like a step, and the lease stays locked until the commit. One transaction writes the step, the child, and the child's row
-- in ready, scheduled or blocked, so a crash leaves all or none of the rows. A second call after a lost response returns the child that
-- was spawned first.
select queue.spawn($1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb) as id
