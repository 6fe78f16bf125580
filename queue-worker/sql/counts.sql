-- How many jobs each queue and job type has in each state. Of the history only the newest rows are counted; `partial` says that there are
-- more.
-- $1 how many rows of done  $2 how many of done_many, which hold one to some hundred jobs each
-- One pass over what waits, runs or is dead, and one index probe for each row of done.
with over as materialized (
  select d.id, d.cancelled
  from queue.done d
  order by d.id desc
  limit $1 + 1
), over_plainly as materialized (
  select m.lane, pg_catalog.cardinality(m.ids) as jobs
  from queue.done_many m
  order by m.first_id desc
  limit $2 + 1
), counted as (
  select r.lane, 'ready' as state, pg_catalog.count(*) as jobs, false as partial
  from queue.ready r
  group by r.lane
  union all
  select s.lane, 'scheduled', pg_catalog.count(*), false
  from queue.scheduled s
  group by s.lane
  union all
  select b.lane, 'blocked', pg_catalog.count(*), false
  from queue.blocked b
  group by b.lane
  union all
  select j.lane, 'running', pg_catalog.count(*), false
  from queue.lease h
  cross join lateral pg_catalog.unnest(h.ids) u (id)
  cross join lateral (select j.lane from queue.job j where j.id = u.id offset 0) j
  group by j.lane
  union all
  select j.lane, case when o.cancelled then 'cancelled' else 'completed' end, pg_catalog.count(*),
    (select pg_catalog.count(*) > $1 from over)
  from over o
  cross join lateral (select j.lane from queue.job j where j.id = o.id offset 0) j
  group by j.lane, o.cancelled
  union all
  select o.lane, 'completed', pg_catalog.sum(o.jobs), (select pg_catalog.count(*) > $2 from over_plainly)
  from over_plainly o
  group by o.lane
  union all
  select d.lane, 'dead', pg_catalog.count(*), false
  from queue.dead d
  group by d.lane
)
select l.queue, l.job_type, c.state, pg_catalog.sum(c.jobs)::bigint as jobs, pg_catalog.bool_or(c.partial) as partial
from counted c
cross join lateral (select l.queue, l.job_type from queue.lane l where l.lane = c.lane limit 1) l
group by l.queue, l.job_type, c.state
order by l.queue, l.job_type, c.state
