-- tallied -> tally_total: adds at most $1 rows to totals, if any rows are old enough. Returns the number of rows, and the number of
-- queues and types that failed. See queue.roll_up.
-- $1 maximum number of rows
-- Safe: rows that another worker rolls up are skipped, and each row is deleted by the statement that rolls it up.
select r.added, r.refused
from queue.roll_up($1) r
