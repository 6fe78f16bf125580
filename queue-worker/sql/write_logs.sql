-- lease -> log: writes logs of attempts that are about to be settled. Returns the number of logs written.
-- $1 tokens, null if the attempt has settled its job itself  $2 ids  $3 attempts  $4 numbers of omitted lines  $5 texts
-- Safe: a log is written only while its token names a lease that lists its job. The statement waits for locks only briefly, and no other waits
-- for it.
select queue.write_logs($1, $2, $3, $4, $5)
