-- How many ms until the next scheduled or parked job is due, by the database's clock; no row when there is none. Reads one index entry of each.
select extract(epoch from d.run_at - pg_catalog.clock_timestamp())::float8 * 1000 as wait_ms
from (
  (select s.run_at from queue.scheduled s order by s.run_at limit 1)
  union all
  -- What is parked is due too.
  (select p.run_at from queue.parked p where p.run_at is not null order by p.run_at limit 1)
) d
order by d.run_at
limit 1
