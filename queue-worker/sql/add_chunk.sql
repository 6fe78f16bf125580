-- Adds a map batch, which consists of jobs that this transaction has enqueued. Returns false if the batch already exists, null if it was rejected.
-- $1 token  $2 parent  $3 step  $4 batch number  $5 index of the first part  $6 ids  $7 maximum number of parts that run at a time, or null
-- Safe: fenced like a step. The lease stays locked until the commit, which follows. After a rejection the caller rolls back the enqueued jobs. A
-- crash leaves only whole batches, and the next attempt continues after the last one.
select queue.add_chunk($1, $2, $3, $4, $5, $6, $7)
