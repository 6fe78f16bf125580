-- Closes a map and journals the step that spawned the map. Returns false if the number of spawned parts differs from $5, or null if the
-- lease no longer lists the parent.
-- $1 token  $2 parent  $3 attempt  $4 step  $5 number of parts
-- Safe: accepted only while the token $1 identifies a lease that contains the parent. Idempotent: a second call after a lost response
-- changes nothing.
select queue.close_gather($1, $2, $3, $4, $5)
