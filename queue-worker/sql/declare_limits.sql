-- bound, bound_type: declares the limits that the worker's code defines. Returns whether any limit or its job types have changed. See
-- queue.declare_limits.
-- $1 all names of the job types that the worker runs  $2 queues that have a limit or are served  $3 job types and $4 their limits, as pairs
-- $5 limits  $6 concurrencies  $7 starts  $8 periods in ms  $9 bursts  $10 whether each limit applies per key
-- Safe: a call without changes takes no lock. Other calls wait for a lock for at most 100 ms, and are retried.
select queue.declare_limits($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
