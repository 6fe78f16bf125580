-- lease -> log: what attempts have logged, which are about to be settled; returns how many were written.
-- $1 tokens, null if the attempt has ended its job by itself  $2 ids  $3 attempts  $4 lines left out  $5 texts
-- Safe: a log counts only while its token's lease has the job. It waits for no lock for long, and nothing waits for it.
select queue.write_logs($1, $2, $3, $4, $5)
