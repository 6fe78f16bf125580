-- child -> nothing: of jobs that are gone, among the next $2 after the job $1; and those that are over are told of. Returns the last that was looked
-- at, or null.
-- $1 after this job  $2 how many at most
-- Safe: only children of jobs that are gone are deleted; rows that others hold are passed over.
select queue.prune_children($1, $2)
