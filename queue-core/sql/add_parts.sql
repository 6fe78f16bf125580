-- ready -> parked: makes jobs of this transaction parts of a node of its flow. Jobs beyond the limit of running jobs are parked.
-- $1 node  $2 number of the chunk  $3 position of the chunk's first job  $4 ids  $5 maximum number of running jobs, or null
-- $6 total number of jobs, with the last chunk only
-- Safe: queue.add_parts accepts only jobs that this transaction has enqueued, which no other transaction sees before the commit.
select queue.add_parts($1, $2, $3, $4, $5, $6)
