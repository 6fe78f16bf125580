-- node, edge -> nothing: scans the next $2 nodes after the job $1. Deletes edges whose target is not waiting. Deletes the nodes of a flow
-- once all of its jobs are deleted. Adds missing hints about ended jobs. Returns the last node scanned, or null at the end.
-- $1 job to start after  $2 maximum number of nodes
-- Safe: only nodes of flows without any remaining job are deleted. Rows locked by other transactions are skipped.
select queue.prune_nodes($1, $2)
