-- Takes away what an operator set; false if there is nothing of the kind.
-- $1 name
-- Safe: one row.
select queue.unset_limit($1)
