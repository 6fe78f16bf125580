-- gather -> nothing, of jobs that are gone; and those that have not moved for long are counted anew: among the next $2 jobs after $1. Returns the
-- last that it looked at, or null at the end.
-- $1 after  $2 how many
-- Safe: what has no job gets none; whoever is at work on a gather is passed over. A count is made under the gather's lock, in one snapshot.
select queue.prune_gathers($1, $2)
