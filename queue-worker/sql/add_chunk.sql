-- Adds a batch to a map. This transaction has enqueued the batch's jobs. Returns false if the batch already exists, or null if the call
-- was rejected.
-- $1 token  $2 parent  $3 step  $4 batch number  $5 index of the first part  $6 ids
-- $7 maximum number of parts that run at a time, or null
-- Safe: accepted only while the token $1 identifies a lease that contains the parent. The lease stays locked until the caller commits. If
-- the result is false or null, the caller rolls back the enqueued jobs. A crash leaves only whole batches, and the next attempt continues
-- after the last batch.
select queue.add_chunk($1, $2, $3, $4, $5, $6, $7)
