-- Finds up to $2 lanes that hold jobs, by id, after $1. Skips from lane to lane: the cost is that of the lanes found, not of their jobs, nor of
-- empty lanes.
-- $1 lane after which to start  $2 maximum number of lanes
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
