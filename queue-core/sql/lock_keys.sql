-- Locks the ordering keys ($1 queue, $2 key)[n], or all keys if $3, until the end of the transaction. All transactions lock in the same order.
-- See queue.lock_keys.
-- $1 queues  $2 keys, null for none  $3 whether to lock all
-- Safe: a transaction that locks all of its keys in one call, in this order, and no others later, cannot deadlock.
select case when queue.is_trusted() then queue.lock_keys($1, $2, $3) else queue.producer_lock_keys($1, $2, $3) end
