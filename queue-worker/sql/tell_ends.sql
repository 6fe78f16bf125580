-- child, gather_part, node -> told: those that wait for the jobs of up to $2 hints from the place $1 on; returns how many hints there were, without
-- those that are left, the lowest of them, and whether to look again at once.
-- $1 floor  $2 how many hints at most
-- Safe: queue.tell_ends tells of a job under the lock on its row, once; it waits for no lock for long. Runs with synchronous_commit=off: lost, the
-- hints are there again.
select t.hints, t.lowest, 0 as moved, t.kept = 0 and t.hints >= $2 as more
from queue.tell_ends($1, $2) t
