-- tallied -> tally_total: adds up to $1 rows, if any are old enough. Returns their number, and the number of queues and types that failed.
-- Safe: rows that another worker adds up are skipped, and each row is deleted by the statement that adds it up. See queue.roll_up.
select r.added, r.refused
from queue.roll_up($1) r
