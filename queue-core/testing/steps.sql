-- step: journals the steps of an attempt. Used in tests.
-- $1 job  $2 attempt  $3 names  $4 remaining ms of each sleep, null for other steps  $5 outputs as JSON text
-- Safe: runs in the test's transaction, which has locked the job's row in ready.
insert into queue.step (id, name, attempt, at, ran_ms, until, output)
select $1, s.name, $2::smallint, clock_timestamp(), 0, clock_timestamp() + s.left_ms * interval '1 millisecond', s.output::jsonb
from unnest($3::text[], $4::float8[], $5::text[]) s (name, left_ms, output)
on conflict do nothing
