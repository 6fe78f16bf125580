-- signal -> nothing: deletes the signals of deleted jobs among the next $2 signals after the job $1. Returns the job after which to
-- continue, or null at the end.
-- $1 job to start after  $2 maximum number of signals
-- Safe: only signals without a job are deleted. Rows locked by other transactions are skipped.
select queue.prune_signals($1, $2)
