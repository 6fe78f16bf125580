-- Returns the combinations of queue, job type and version that have ready jobs and are served by no live worker. Also returns the number
-- of ready jobs of each combination, and whether there may be more.
-- $1 maximum number of ready jobs counted per row; the maximum in total is ten times this number
-- $2 maximum number of rows, in the order of queue and job type
-- Safe: read-only. A worker whose release does not report job types is assumed to serve all job types.
with chosen as materialized (
  select l.queue, l.job_type, pg_catalog.array_agg(distinct l.lane) as lanes
  from queue.lane l
  where not exists (
    select from queue.worker w
    where w.expires_at > now()
      and (pg_catalog.cardinality(w.queues) = 0 or l.queue = any (w.queues))
      and (w.types is null or l.job_type = any (w.types))
  )
  group by l.queue, l.job_type
), floors as materialized (
  select p.lane, p.seq, p.partial
  from queue.lane_floors() p
), share as materialized (
  select least($1::bigint, greatest(10 * $1 / greatest(least(count(*), $2::bigint), 1), 1)) as jobs
  from chosen
)
select c.queue, queue.type_of(c.job_type) as job_type, least(n.jobs, s.jobs) as jobs, n.jobs > s.jobs or k.partial as partial,
  queue.version_of(c.job_type) as version
-- The subquery has the order of the result, so the query stops at the limit without counting the jobs of later combinations.
from (select c.queue, c.job_type, c.lanes from chosen c order by c.queue, c.job_type) c
cross join share s
cross join lateral (
  select exists (select from floors p where p.lane = any (c.lanes) and p.partial) as partial
) k
cross join lateral (
  select count(*) as jobs
  from (
    select
    from pg_catalog.unnest(c.lanes) u (lane)
    left join floors p on p.lane = u.lane
    -- The index is read from the end, because dead entries accumulate at the front.
    cross join lateral (select from queue.ready r where r.lane = u.lane and r.seq >= coalesce(p.seq, 0) order by r.seq desc limit s.jobs + 1) one
    limit s.jobs + 1
  ) seen
) n
where n.jobs > 0 or k.partial
order by c.queue, c.job_type
limit $2
