-- over -> end_hint: the jobs $1, of which this transaction has ended some; or all, and all have come to the state $2.
-- $1 ids  $2 state, or null
-- Safe: it only inserts, so that it waits for no row; it commits with what has ended them, or not at all.
select queue.note_ends($1, $2)
