-- Ends the pause of exactly the given queue and job type. Returns false if there is no such pause.
-- $1 queue or '*'  $2 job type or '*'
-- Safe: deletes one row.
select queue.resume($1, $2)
