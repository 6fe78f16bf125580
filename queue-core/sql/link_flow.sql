-- ready -> parked: jobs of this transaction become the nodes of a flow, and those with edges to them wait; returns the flow's id.
-- $1 ids  $2 names  $3 sources and $4 targets of the edges, places in $1  $5 whether on death  $6 if dead  $7 whether the source gives something
-- Safe: queue.link_flow takes only jobs that this transaction has enqueued, which nobody else sees before its commit.
select queue.link_flow($1, $2, $3, $4, $5, $6, $7)
