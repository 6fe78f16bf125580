-- parked -> ready: releases the jobs of a node that has waited for others, up to the limit of running jobs, once the hint of the node is consumed.
-- $1 node
-- Safe: queue.open_gather releases only parked jobs, and each only once. The caller's transaction journals the call under the node's lease.
select queue.open_gather($1)
