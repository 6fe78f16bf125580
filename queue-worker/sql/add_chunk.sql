-- Parts of a gather: jobs that this transaction has enqueued, as its next chunk. Null if it was refused, false if there is such a chunk.
-- $1 token  $2 parent  $3 the step  $4 which chunk  $5 the place of its first part  $6 ids  $7 how many are let run at once, or null
-- Safe: fenced as a step is, and the lease stays locked until the commit, which follows; refused, the caller rolls back what it has enqueued.
-- A crash leaves whole chunks, and the next attempt goes on after the last.
select queue.add_chunk($1, $2, $3, $4, $5, $6, $7)
