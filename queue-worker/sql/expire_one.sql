-- ready -> done, expired: the job $1, whose entry this transaction has locked, if its time has come and it has not begun; returns whether it is over.
-- $1 id
-- Safe: see queue.expire_all. What this transaction has locked itself it does not pass over.
select exists (select from queue.expire_all(array[$1::bigint]))
