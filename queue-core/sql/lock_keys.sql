-- Locks the ordering keys ($1 queue, $2 key)[n], or all keys if $3 is true, until the end of the transaction. See queue.lock_keys.
-- $1 queues  $2 keys, null for none  $3 whether to lock all keys
-- Safe: all transactions lock in the same order. A transaction cannot deadlock if it locks all of its keys in one call and no other keys later.
select case when queue.is_trusted() then queue.lock_keys($1, $2, $3) else queue.producer_lock_keys($1, $2, $3) end
