-- Returns one job as its producer sees it: state, attempts, last error, output. No row if it does not exist.
-- $1 id
-- Safe: reads only. Clients in every language call queue.status.
select s.state, s.attempts, s.error, s.output::pg_catalog.text as output
from queue.status($1) s
