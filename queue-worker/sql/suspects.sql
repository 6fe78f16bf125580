-- Returns the quarantine lanes of $1 that hold jobs, and how many jobs of each lane may run together. These are jobs with one crash, from the head
-- of the lane up to the first job with more crashes, which must run alone. Their number is at most $2.
-- $1 lanes  $2 maximum number of jobs per lane
select l.lane, h.together
from unnest($1::bigint[], $2::bigint[]) l (lane, most)
cross join lateral (
  select count(*) filter (where o.all_first) as together, count(*) as found
  from (
    select bool_and(r.crashes = 1) over (order by r.seq) as all_first
    from (select r.seq, r.crashes from queue.ready r where r.lane = l.lane order by r.seq limit l.most) r
  ) o
) h
where h.found > 0
