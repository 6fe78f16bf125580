-- scheduled | blocked | ready -> done: releases ordering keys by cancelling the jobs $1 that hold them. Returns the number of cancelled
-- jobs. Runs in the store's schema, not in the schema of the placement tables.
-- $1 ids
-- Safe: skips jobs that another session has locked. The next step of the tenant's move cancels them.
select count(*) from queue.cancel_waiting_all($1::bigint[])
