-- lane, leaving -> the same, one step further: sets the id of this transaction on rows marked in the transactions $1, which no snapshot sees
-- unmarked any more. Once all running transactions have higher ids than a row, the row is final: every job enqueued with the row is visible, and no
-- such job has a higher id than the present maximum.
-- $1 transactions, from unseen_lanes.sql  $2 maximum number of rows
-- Safe: rows are locked and checked again. The maximum is the id of a job whose transaction has ended, because all relevant transactions have
-- ended.
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
