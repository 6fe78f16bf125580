-- child -> nothing: deletes the children of deleted jobs among the next $2 after the job $1, and reports finished children to their parents.
-- Returns the last job scanned, or null.
-- $1 job to start after  $2 maximum number of rows
-- Safe: only children of deleted jobs are deleted. Rows locked by others are skipped.
select queue.prune_children($1, $2)
