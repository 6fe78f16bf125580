-- lane, leaving -> the same, a step further: rows that began to leave in the transactions $1, which nobody sees any more as they were before, have
-- this one's number. Rows whose number is lower than that of all transactions that still run are done with: whatever was enqueued by
-- who saw them is there to be seen, and nothing of it has a higher id than what is there now.
-- $1 transactions, of unseen_lanes.sql  $2 how many rows at most
-- Safe: rows are locked and looked at again. An id is that of a job whose transaction is over, for all that counts have ended.
update queue.lane l
set passed = coalesce(l.passed, pg_current_xact_id()),
  above = case when l.passed is not null then coalesce((select j.id from queue.job j order by j.id desc limit 1), 0) end
where l.ctid = any (array(
  select o.ctid
  from queue.lane o
  where o.passed is null and o.leaving::text = any ($1)
    or o.above is null and o.passed < pg_snapshot_xmin(pg_current_snapshot())
  limit $2
  for update skip locked
))
