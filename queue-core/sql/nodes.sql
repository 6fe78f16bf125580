-- Returns the nodes of the flow that contains the job $1, with the states of the nodes' jobs.
-- $1 id of the job  $2 maximum number of nodes
-- Safe: read-only.
select n.name, n.id, n.state, n.after, n.on_dead, n.waits, n.jobs, n.over
from queue.nodes($1, $2) n
