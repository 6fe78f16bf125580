-- Locks the ordering keys ($1 queue, $2 key)[n] until the end of the transaction, in one order for all; or all there are, if $3. See queue.lock_keys.
-- $1 queues  $2 keys, null for none  $3 whether all
-- Safe: a transaction that locks all of its keys at once, in this order, and no more afterwards, waits for none that waits for it.
select case when queue.is_trusted() then queue.lock_keys($1, $2, $3) else queue.producer_lock_keys($1, $2, $3) end
