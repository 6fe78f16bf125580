-- ready -> parked: makes jobs of this transaction parts of a flow node. Parts beyond the maximum number of running parts are parked.
-- $1 node  $2 number of the batch  $3 position of the batch's first part  $4 ids of the parts
-- $5 maximum number of running parts, or null
-- $6 total number of parts if this batch is the last one, otherwise null
-- Safe: queue.add_parts accepts only jobs that this transaction has enqueued, which no other transaction sees before the commit.
select queue.add_parts($1, $2, $3, $4, $5, $6)
