-- Lets $3 jobs of the key $2 run at once under the limit by key $1, or what that says of keys if it is null; see queue.set_limit_key.
-- $1 limit  $2 key  $3 concurrency, or null
-- Safe: one row; whoever sets one is alone until its commit.
select queue.set_limit_key($1, $2, $3)
