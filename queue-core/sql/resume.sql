-- Ends the pause of exactly this scope; returns false if there is none.
-- $1 queue or '*'  $2 job type or '*'
-- Safe: one row.
select queue.resume($1, $2)
