-- Adds to the number of jobs of an audit entry.
-- $1 number of the entry  $2 number of jobs to add
-- Safe: changes one row, in the transaction of the operation.
select queue.count_act($1, $2)
