-- Sets the concurrency of the key $2 under the limit by key $1 to $3, or removes the setting if $3 is null. See queue.set_limit_key.
-- $1 limit  $2 key  $3 concurrency or null
-- Safe: writes one row. Changes of limits are serialized until commit.
select queue.set_limit_key($1, $2, $3)
