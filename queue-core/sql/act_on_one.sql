-- Applies an operation to one job. Raises an error with the reason if the job's state does not allow the operation. Returns the outcome. See
-- queue.act_on_one.
-- $1 id  $2 operation  $3 time  $4 delay in ms, if there is no time  $5 priority
-- Safe: see the functions of the operations.
select queue.act_on_one(
  $1, $2, coalesce($3::timestamptz, pg_catalog.clock_timestamp() + $4::float8 * interval '1 millisecond'), $5::int
)
