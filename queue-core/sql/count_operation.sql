-- Adds jobs to the job count of an audit entry.
-- $1 id of the entry  $2 number of jobs to add
-- Safe: changes one row, in the operation's transaction.
select queue.count_operation($1, $2)
