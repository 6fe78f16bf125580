-- log -> nothing: deletes the logs of deleted jobs among the next $2 rows after the job $1. Returns the last job scanned, or null at the
-- end.
-- $1 job to start after  $2 maximum number of rows
-- Safe: only logs without a job are deleted. Rows locked by other transactions are skipped.
select queue.prune_logs($1, $2)
