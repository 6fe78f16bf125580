-- lane, leaving -> nothing: up to $1 rows beside a new row of their lane, which is in use; returns how many.
-- $1 how many at most
-- Safe: whoever enqueued by such a row is over, and the new one is seen by all who come. It cannot go meanwhile: that takes longer than
-- this transaction, which has a number.
with gone as (
  delete from queue.lane
  where ctid = any (array(
    select l.ctid
    from queue.lane l
    where l.above is not null  -- guard: replaced: only when those who saw it have ended [l.above is not null => l.leaving is not null]
      -- guard: replaced: by a row of its lane [o.lane = l.lane and ]; replaced: by a row that stays [ and o.leaving is null]
      and exists (select from queue.lane o where o.lane = l.lane and o.leaving is null)
    limit $1  -- guard: replaced: so many at most [$1 => $1::bigint * 2]
    for update skip locked  -- guard: replaced: locks; replaced: not what others hold [ skip locked]
  ))
  returning 1
)
select count(*) from gone
