-- Sets the concurrency of one key of a per-key limit, or removes the setting if $3 is null. See queue.set_limit_key.
-- $1 limit  $2 key  $3 concurrency or null
-- Safe: writes one row of key_bound, and the revision of the limit. Only one transaction at a time can change limits.
select queue.set_limit_key($1, $2, $3)
