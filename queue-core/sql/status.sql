-- Returns one job's state, attempts, last error and output, for the job's producer. Returns no row if the job does not exist.
-- $1 id
-- Safe: read-only. Calls queue.status, which is also the interface for clients in other languages.
select s.state, s.attempts, s.error, s.output::pg_catalog.text as output
from queue.status($1) s
