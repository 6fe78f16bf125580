-- node, edge -> nothing: scans the next $2 nodes after the job $1. Deletes edges whose target is not waiting, and nodes of flows whose jobs are all
-- deleted. Adds missing hints of ends. Returns the last node scanned, or null.
-- $1 job to start after  $2 maximum number of nodes
-- Safe: only nodes of flows without any remaining job are deleted. Rows locked by other transactions are skipped.
select queue.prune_nodes($1, $2)
