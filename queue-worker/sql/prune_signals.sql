-- signal -> nothing: of jobs that are gone, among the next $2 after the job $1; returns the last that was looked at, or null.
-- $1 after this job  $2 how many at most
-- Safe: only signals without a job are deleted; rows that others hold are passed over.
select queue.prune_signals($1, $2)
