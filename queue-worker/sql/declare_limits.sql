-- bound, bound_type: what this worker's code says of limits; see queue.declare_limits. Returns whether anything is new.
-- $1 its job types, by every name  $2 the queues that it names  $3 and $4 which type names which limit
-- $5 limits  $6 concurrencies  $7 starts  $8 periods in ms  $9 bursts  $10 which are by key
-- Safe: whoever says what is known already locks nothing; another one waits a tenth of a second at most, and tries again.
select queue.declare_limits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
