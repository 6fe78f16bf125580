-- ready -> parked: creates a flow whose nodes are jobs of this transaction. Jobs that are the target of an edge are parked. Returns the
-- flow's id.
-- $1 ids  $2 names  $3 sources and $4 targets of the edges, as positions in $1  $5 whether an edge's target waits for the source's death
-- $6 effect on the target if the source dies: hold, cancel or continue  $7 whether the source passes its output to the target
-- Safe: queue.link_flow accepts only jobs that this transaction has enqueued, which no other transaction sees before the commit.
select queue.link_flow($1, $2, $3, $4, $5, $6, $7)
