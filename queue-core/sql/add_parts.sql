-- ready -> parked: makes jobs of this transaction parts of a node of its flow. Those beyond the limit of running jobs wait.
-- $1 node  $2 number of the chunk  $3 position of its first job  $4 ids  $5 maximum number of running jobs, or null  $6 with the last chunk:
-- total number
-- Safe: queue.add_parts accepts only jobs that this transaction has enqueued, which no other transaction sees before its commit.
select queue.add_parts($1, $2, $3, $4, $5, $6)
