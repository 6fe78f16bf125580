-- Ends the pause of exactly the given scope. Returns false if the scope is not paused.
-- $1 queue or '*'  $2 job type or '*'
-- Safe: deletes one row.
select queue.resume($1, $2)
