-- Does an act to one job, as its state allows, or refuses it by name; says what became of the job. See queue.act_on_one.
-- $1 id  $2 act  $3 time  $4 wait in ms, if there is no time  $5 priority
-- Safe: see the functions of the acts.
select queue.act_on_one(
  $1, $2, coalesce($3::timestamptz, pg_catalog.clock_timestamp() + $4::float8 * interval '1 millisecond'), $5::int
)
