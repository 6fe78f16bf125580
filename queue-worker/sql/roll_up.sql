-- tallied -> tally_total: adds at most $1 rows to totals, but only if some row is older than 30 seconds. Returns the number of added
-- rows, and the number of pairs of queue and type whose rows could not be added. See queue.roll_up.
-- $1 maximum number of rows
-- Safe: rows that another worker is rolling up are skipped, and each row is deleted by the statement that rolls it up.
select r.added, r.refused
from queue.roll_up($1) r
