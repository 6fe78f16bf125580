-- Locks the ordering keys $2 of the queues $1, or all keys if $3 is true, until the end of the transaction. See queue.lock_keys.
-- $1 queues  $2 one key for each queue, or null for none  $3 whether to lock all keys
-- Safe: each call locks its keys in one global order. Transactions that lock all of their keys in a single call therefore cannot deadlock
-- with each other.
select case when queue.is_trusted() then queue.lock_keys($1, $2, $3) else queue.producer_lock_keys($1, $2, $3) end
