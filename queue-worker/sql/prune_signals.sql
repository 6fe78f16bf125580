-- signal -> nothing: of jobs that are gone, among the next $2 signals of jobs after $1; returns the job after which to go on, or null at the end.
-- $1 after this job  $2 how many at most
-- Safe: only signals without a job are deleted; rows that others hold are passed over.
select queue.prune_signals($1, $2)
