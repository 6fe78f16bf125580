-- One job as its producer sees it: its state, its attempts, its last error, its output. No row when it is not there.
-- $1 id
-- Safe: it only reads; queue.status is what every language asks.
select s.state, s.attempts, s.error, s.output::pg_catalog.text as output
from queue.status($1) s
