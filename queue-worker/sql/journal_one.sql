-- step: what one attempt has finished, by itself; returns the transaction's number, no row if it was refused.
-- $1 token  $2 id  $3 name  $4 attempt  $5 run time in ms  $6 of a sleep: the wait in ms, else null  $7 output as JSON text, null for none
-- Safe: as journal.sql is, of which this is the short form: a step counts only while its token names a lease that has its id, and the lease stays
-- locked until the commit. One that is journaled already is an error, a violation of `step_pkey`: then journal.sql says what it is. In a
-- transaction with what it wrote, that error undoes what was written a second time.
insert into queue.step (id, name, attempt, at, ran_ms, until, output)
select $2, $3, $4::smallint, statement_timestamp(), $5::int, statement_timestamp() + $6::float8 * interval '1 millisecond', $7::text::jsonb
from (
  select
  from queue.lease l
  where l.token = $1::uuid and $2::bigint = any (l.ids)
  for share
) h
returning pg_current_xact_id()::text
