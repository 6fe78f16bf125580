-- lease -> log: writes the logs of attempts that are about to be settled. Returns the number of written logs.
-- $1 lease tokens, null for an attempt that has already settled its job  $2 job ids  $3 attempt numbers  $4 omitted line counts
-- $5 log texts
-- Safe: a log with a token is written only while the token identifies a lease that contains the job. A log without a token is written if
-- the job exists. The lock timeout is short, and no other statement waits for this statement.
select queue.write_logs($1, $2, $3, $4, $5)
