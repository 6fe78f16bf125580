-- Notes an act; returns the note's number.
-- $1 actor  $2 act  $3 to what  $4 to how many jobs
-- Safe: one row, in the transaction of the act.
select queue.note_act($1, $2, $3, $4)
