-- lane (leaving) -> nothing: deletes up to $1 rows that are marked for deletion and whose lane has a newer, unmarked row. Returns the
-- number of deleted rows.
-- $1 maximum number of rows
-- Safe: `above` is set only after all transactions that enqueued with the row have ended, and later transactions see the new row. The new
-- row stays during the statement, because its deletion has to wait for the end of the current transaction.
with deleted as (
  delete from queue.lane
  where ctid = any (array(
    select l.ctid
    from queue.lane l
    where l.above is not null
      and exists (select from queue.lane o where o.lane = l.lane and o.leaving is null)
    limit $1
    for update skip locked
  ))
  returning 1
)
select count(*) from deleted
