-- lane (leaving) -> lane (leaving): advances the deletion of marked lane rows. The marks of the transactions $1 are visible to every
-- snapshot. A row with such a mark gets the id of the current transaction (`passed`). Once all running transactions are newer than
-- `passed`, the row gets the highest job id (`above`). All jobs that were enqueued with the row are then visible.
-- $1 transactions, from unseen_lanes.sql  $2 maximum number of rows
-- Safe: rows are locked and checked again. No job that was enqueued with the row has an id above the recorded one, because all
-- transactions that used the row have ended.
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
