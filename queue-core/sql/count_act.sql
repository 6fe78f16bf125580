-- Adds to how many jobs an act was done.
-- $1 the note's number  $2 how many more
-- Safe: one row, in the transaction of the act.
select queue.count_act($1, $2)
