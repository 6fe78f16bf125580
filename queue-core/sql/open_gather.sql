-- parked -> ready: the jobs of a node that has waited for others, as many as may run at once, when their hint is consumed.
-- $1 the node
-- Safe: queue.open_gather opens what waits, and that once. Called in a transaction that journals it under the node's lease.
select queue.open_gather($1)
