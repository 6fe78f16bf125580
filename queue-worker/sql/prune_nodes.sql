-- node, edge -> nothing: deletes edges whose target does not wait, and nodes of flows whose jobs are all deleted, among the next $2 nodes after the
-- job $1. Adds missing hints of ends. Returns the last node scanned, or null.
-- $1 job to start after  $2 maximum number of nodes
-- Safe: only nodes of flows without any job left are deleted. Rows locked by others are skipped.
select queue.prune_nodes($1, $2)
