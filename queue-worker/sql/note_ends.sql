-- end_hint: writes hints for jobs that this transaction has ended. With $2, all jobs of $1 ended in that state. Without $2, some jobs may not have
-- ended.
-- $1 ids  $2 state, or null
-- Safe: only inserts, so the statement waits for no row lock. The hints are committed together with the ends, or not at all.
select queue.note_ends($1, $2)
