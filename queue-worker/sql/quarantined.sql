-- Returns the quarantine lanes in $1 that hold jobs, and how many jobs of each lane may run together. The jobs at the head of a lane may
-- run together if each has one crash. A job with more crashes must run alone, so the count ends before the first such job. At most $2 jobs
-- of a lane are counted.
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
