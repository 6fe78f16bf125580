-- child -> nothing: scans the next $2 rows of child after the job $1. Deletes the rows of deleted parents, and adds hints for finished
-- children without a recorded result. Returns the last parent scanned, or null at the end.
-- $1 job to start after  $2 maximum number of rows
-- Safe: only rows of deleted parents are deleted. Rows locked by other transactions are skipped.
select queue.prune_children($1, $2)
