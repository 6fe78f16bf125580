-- Of the solo lanes $1, those that hold jobs, and how many of each have ended one process only, from its head on and up to $2 of it: these may be
-- tried together, since another crash does not convict any. The first that has ended more ends the row, and is tried alone.
-- $1 lanes  $2 how many at most of each
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
