-- Up to $2 lanes that hold jobs, in the order of their ids, from $1 on. Skips from lane to lane: its cost is that of the lanes found, not
-- of the jobs in them nor of the lanes that are empty.
-- $1 lane after which to begin  $2 how many at most
with recursive found as (
  (select r.lane from queue.ready r where r.lane > $1 order by r.lane, r.seq limit 1)
  union all
  select (select r.lane from queue.ready r where r.lane > f.lane order by r.lane, r.seq limit 1)
  from found f
  where f.lane is not null
)
select f.lane
from found f
where f.lane is not null
limit $2
