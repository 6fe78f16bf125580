-- Applies an operation to the jobs $1 whose state allows the operation and that no other session has locked. Returns the outcome for each job. See
-- queue.act_on_all.
-- $1 ids  $2 operation  $3 time  $4 delay in ms, if there is no time  $5 priority
-- Safe: see the functions of the operations.
select a.became
from queue.act_on_all(
  $1, $2, coalesce($3::timestamptz, pg_catalog.clock_timestamp() + $4::float8 * interval '1 millisecond'), $5::int
) a
