-- parked -> ready: releases the parts of a node whose sources have finished, up to the maximum number of running parts. The parts become
-- ready when a worker consumes the hint that queue.open_gather writes.
-- $1 node
-- Safe: queue.open_gather releases only parked parts, and each part only once. The caller's transaction journals the call under the
-- node's lease.
select queue.open_gather($1)
