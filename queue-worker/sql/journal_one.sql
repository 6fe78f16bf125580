-- step: journals one finished step. Returns the transaction's id, or no row if the step was rejected.
-- $1 token  $2 id  $3 name  $4 attempt  $5 run time in ms  $6 duration of a sleep in ms, null for other kinds of steps
-- $7 output as JSON text, null for none
-- Safe: as in journal.sql, the step is accepted only while its token identifies a lease that contains the job. The lease stays locked
-- until the commit. If the step is already journaled, the statement violates `step_pkey`, and the caller falls back to journal.sql. In a
-- handler's own transaction, the error rolls back the repeated effects of the step.
insert into queue.step (id, name, attempt, at, ran_ms, until, output)
select $2, $3, $4::smallint, statement_timestamp(), $5::int, statement_timestamp() + $6::float8 * interval '1 millisecond', $7::text::jsonb
from (
  select
  from queue.lease l
  where l.token = $1::uuid and $2::bigint = any (l.ids)
  for share
) h
returning pg_current_xact_id()::text
