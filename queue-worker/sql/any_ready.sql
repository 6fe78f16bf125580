-- Whether a lane holds jobs: one index entry a lane; with too many lanes to ask, one for all.
-- $1 lanes, null when there are too many  $2 their floors
select
  exists (
    select from unnest($1::bigint[], $2::bigint[]) l (lane, floor)
    cross join lateral (select r.seq from queue.ready r where r.lane = l.lane and r.seq >= l.floor order by r.seq limit 1) r
  )
  or ($1 is null and exists (select from (select r.lane from queue.ready r order by r.lane, r.seq limit 1) r))
