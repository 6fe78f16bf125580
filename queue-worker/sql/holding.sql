-- Which of these lanes hold jobs: one index entry of each.
-- $1 lanes  $2 floors
select l.lane
from unnest($1::bigint[], $2::bigint[]) l (lane, floor)
cross join lateral (select r.seq from queue.ready r where r.lane = l.lane and r.seq >= l.floor order by r.seq limit 1) r
