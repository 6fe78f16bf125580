-- nothing -> ready | scheduled | blocked: a child of a job that the lease has, and the step that spawned it; returns its id, null if it was refused.
-- $1 token  $2 parent  $3 attempt  $4 the step  $5 job type  $6 payload  $7 options, as JSON texts
-- Safe: fenced as a step is, and the lease stays locked until the commit. The step, the child and its entry are one transaction's writes: a crash
-- leaves all or none, and said twice, because an answer was lost, it is the child that was spawned first.
select queue.spawn($1, $2, $3, $4, $5, $6::text::jsonb, $7::text::jsonb) as id
