-- Removes an operator's override of a limit. Returns false if there is no override.
-- $1 name
-- Safe: also deletes the limiters of limits that now have no settings. The deletion waits for claims under these limits, because such a claim
-- has locked the limiter. Only one transaction at a time can change limits.
select queue.unset_limit($1)
