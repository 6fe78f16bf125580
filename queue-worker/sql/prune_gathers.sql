-- gather -> nothing: deletes gathers of deleted jobs, and recounts gathers that have made no progress for a long time, among the next $2 jobs after
-- $1. Returns the last job scanned, or null at the end.
-- $1 job to start after  $2 maximum number of jobs
-- Safe: a deleted job never gets new gathers. Gathers locked by other transactions are skipped. A recount runs under the gather's lock, in one
-- snapshot.
select queue.prune_gathers($1, $2)
