-- Adds a map batch: jobs that this transaction has enqueued. Returns false if the batch already exists, null if it was refused.
-- $1 token  $2 parent  $3 step  $4 batch number  $5 index of its first part  $6 ids  $7 maximum number of parts that run at a time, or null
-- Safe: fenced like a step. The lease stays locked until the commit, which follows. After a refusal the caller rolls back the enqueued jobs. A
-- crash leaves only whole batches, and the next attempt continues after the last one.
select queue.add_chunk($1, $2, $3, $4, $5, $6, $7)
