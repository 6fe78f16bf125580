-- Pauses the jobs of the type $2 in the queue $1. Returns the pause's number.
-- $1 queue or '*' for all queues  $2 job type or '*' for all job types  $3 reason or null
-- Safe: writes one row. Pauses are serialized until commit, so they become visible in the order of their numbers.
select queue.pause($1, $2, $3)
