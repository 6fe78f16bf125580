-- ready -> parked: jobs of this transaction become parts of a node of its flow, and those that are more than may run at once wait.
-- $1 node  $2 number of the chunk  $3 place of its first job  $4 ids  $5 how many may run at once, or null  $6 with the last chunk: how many in all
-- Safe: queue.add_parts takes only jobs that this transaction has enqueued, which nobody else sees before its commit.
select queue.add_parts($1, $2, $3, $4, $5, $6)
