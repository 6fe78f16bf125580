-- step: what an attempt in a test has journaled.
-- $1 job  $2 attempt  $3 names  $4 of sleeps: how many ms are left, else null  $5 outputs as JSON text
-- Safe: in the test's transaction, which holds the job's entry.
insert into queue.step (id, name, attempt, at, ran_ms, until, output)
select $1, s.name, $2::smallint, clock_timestamp(), 0, clock_timestamp() + s.left_ms * interval '1 millisecond', s.output::jsonb
from unnest($3::text[], $4::float8[], $5::text[]) s (name, left_ms, output)
on conflict do nothing
