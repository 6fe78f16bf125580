-- Pauses the jobs of the queue $1 and of the job type $2, each '*' for all. Returns the pause's number.
-- $1 queue  $2 job type  $3 reason or null
-- Safe: writes one row. Pauses are serialized until commit, so they become visible in the order of their numbers.
select queue.pause($1, $2, $3)
