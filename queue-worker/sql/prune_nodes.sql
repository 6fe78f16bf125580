-- node, edge -> nothing: of flows that are gone, or at which nobody waits, among the next $2 nodes after the job $1; and ends that nobody told of are
-- told of. Returns the last that was looked at, or null.
-- $1 after this job  $2 how many at most
-- Safe: only nodes of flows of which no job is left are deleted; rows that others hold are passed over.
select queue.prune_nodes($1, $2)
