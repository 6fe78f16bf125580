-- Whether any of the solo lanes $1 holds a job. Reads one index entry a lane.
select exists (
  select
  from unnest($1::bigint[]) l (lane)
  cross join lateral (select from queue.ready r where r.lane = l.lane order by r.seq limit 1) r
)
