-- ready jobs that wait for nobody: for each queue and job type that no living worker serves, how many are ready.
-- $1 how many jobs of each are counted at most
-- Safe: it only reads. A worker of a release that did not say its job types is taken to serve all of them.
select u.queue, u.job_type, n.jobs
from (
  select l.queue, l.job_type, pg_catalog.array_agg(distinct l.lane) as lanes
  from queue.lane l
  where not exists (
    select from queue.worker w
    where w.expires_at > now()
      and (pg_catalog.cardinality(w.queues) = 0 or l.queue = any (w.queues))
      and (w.types is null or l.job_type = any (w.types))
  )
  group by l.queue, l.job_type
) u
cross join lateral (
  select count(*) as jobs
  from (
    select
    from pg_catalog.unnest(u.lanes) k (lane)
    cross join lateral (select from queue.ready r where r.lane = k.lane limit $1) one
    limit $1
  ) seen
) n
where n.jobs > 0
order by u.queue, u.job_type
