-- tallied -> tally_total: up to $1 rows, if any are old enough. Returns how many, and of how many queues and types it cannot be done now.
-- Safe: rows that others add up are passed over, and each is deleted by the statement that adds it up; see queue.roll_up.
select r.added, r.refused
from queue.roll_up($1) r
