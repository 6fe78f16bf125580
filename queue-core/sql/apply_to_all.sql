-- Applies an operation to the jobs $1. Skips jobs whose state does not allow the operation, and jobs that another session has locked.
-- Returns the outcome for each changed job. See queue.apply_to_all.
-- $1 ids  $2 operation  $3 time  $4 delay in ms if $3 is null  $5 priority
-- Safe: see the function of each operation in 8_control.sql.
select a.became
from queue.apply_to_all(
  $1, $2, coalesce($3::timestamptz, pg_catalog.clock_timestamp() + $4::float8 * interval '1 millisecond'), $5::int
) a
