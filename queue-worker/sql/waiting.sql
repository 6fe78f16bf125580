-- Returns up to $2 lanes that have ready jobs, ordered by id, after the lane $1. Jumps from lane to lane in the index, so the cost depends
-- only on the number of lanes found.
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
