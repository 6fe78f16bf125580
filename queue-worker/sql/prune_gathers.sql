-- gather -> nothing: scans the next $2 maps after the job $1. Deletes the maps of deleted jobs, and recounts up to three maps that have
-- made no progress for five minutes. Returns the last job scanned, or null at the end.
-- $1 job to start after  $2 maximum number of maps
-- Safe: a deleted job never gets new maps. Maps locked by other transactions are skipped. A recount runs under the map's lock, in one
-- snapshot.
select queue.prune_gathers($1, $2)
