-- Removes an operator's override of a limit; returns false if there is none.
-- $1 name
-- Safe: one row.
select queue.unset_limit($1)
