-- lane, leaving -> nothing: up to $1 rows beside a new row of their lane, which is in use; returns how many.
-- $1 how many at most
-- Safe: whoever enqueued by such a row is over, and the new one is seen by all who come. It cannot go meanwhile: that takes longer than
-- this transaction, which has a number.
with gone as (
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
select count(*) from gone
