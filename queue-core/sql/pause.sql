-- Pauses what is in the queue $1 ('*' is any) and of the job type $2 (the same); returns the pause's number.
-- $1 queue  $2 job type  $3 reason, or null
-- Safe: one row; whoever pauses is alone until its commit, so that pauses become visible in the order of their numbers.
select queue.pause($1, $2, $3)
