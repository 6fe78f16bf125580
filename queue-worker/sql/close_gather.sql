-- Closes a map and journals the step that spawned it. Returns false if the map has another number of parts, null if it was refused.
-- $1 token  $2 parent  $3 attempt  $4 step  $5 number of parts
-- Safe: fenced like a step. Idempotent: a second call after a lost answer changes nothing.
select queue.close_gather($1, $2, $3, $4, $5)
