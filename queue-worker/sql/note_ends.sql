-- end_hint: writes hints for jobs that this transaction has ended. With $2, all of $1 ended in that state. Without it, some may not have ended.
-- $1 ids  $2 state, or null
-- Safe: only inserts, so it waits for no row lock. It commits together with the ends, or not at all.
select queue.note_ends($1, $2)
