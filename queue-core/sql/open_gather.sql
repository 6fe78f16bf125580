-- parked -> ready: releases the jobs of a node that has waited for others, up to the limit of running jobs, once their hint is consumed.
-- $1 the node
-- Safe: queue.open_gather releases only waiting jobs, and only once. Called in a transaction that journals it under the node's lease.
select queue.open_gather($1)
