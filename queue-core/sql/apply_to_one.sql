-- Applies an operation to one job, and returns the outcome. Raises an error with the reason if the job's state does not allow the
-- operation. See queue.apply_to_one.
-- $1 id  $2 operation  $3 time  $4 delay in ms if $3 is null  $5 priority
-- Safe: see the function of each operation in 8_control.sql.
select queue.apply_to_one(
  $1, $2, coalesce($3::timestamptz, pg_catalog.clock_timestamp() + $4::float8 * interval '1 millisecond'), $5::int
)
