-- How many ms until the next scheduled job is due, by the database's clock; no row when there is none. Reads one index entry.
select extract(epoch from s.run_at - pg_catalog.clock_timestamp())::float8 * 1000 as wait_ms
from queue.scheduled s
order by s.run_at
limit 1
