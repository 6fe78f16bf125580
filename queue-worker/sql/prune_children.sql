-- child -> nothing: scans the next $2 rows after the job $1. Deletes the children of deleted jobs, and reports finished children to their parents.
-- Returns the last job scanned, or null.
-- $1 job to start after  $2 maximum number of rows
-- Safe: only children of deleted jobs are deleted. Rows locked by other transactions are skipped.
select queue.prune_children($1, $2)
