-- Locks the ordering keys $2 of the queues $1, or all keys if $3 is true, until the end of the transaction. See queue.lock_keys.
-- $1 queues  $2 one key for each queue, or null for none  $3 whether to lock all keys
-- Safe: all transactions lock in the same order. A transaction that locks all of its keys in one call, and no keys later, cannot
-- deadlock.
select case when queue.is_trusted() then queue.lock_keys($1, $2, $3) else queue.producer_lock_keys($1, $2, $3) end
