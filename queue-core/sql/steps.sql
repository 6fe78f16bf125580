-- Returns the first thousand journaled steps of the job $1, without their outputs.
-- $1 id
-- Safe: read-only.
select s.name, s.attempt, s.at, s.ran_ms, s.until
from queue.steps($1) s
