-- Writes an audit entry, and returns its number.
-- $1 actor  $2 operation  $3 target  $4 number of jobs
-- Safe: inserts one row, in the operation's transaction.
select queue.record_operation($1, $2, $3, $4)
