-- Returns the schedule $1, or all schedules if $1 is null, each with the outcome of its last tick.
-- $1 name or null
-- Safe: read-only.
select s.name, s.job_type, s.cron, extract(epoch from s.every)::float8 as every, s.tz, s.missed, extract(epoch from s.grace)::float8 as grace,
  s.overlap, extract(epoch from s.jitter)::float8 as jitter, s.source, s.next_at, s.skip_at, s.paused_at, s.withdrawn_at, s.error,
  f.tick, f.fired_at, f.job, f.outcome, f.error as why, pg_catalog.clock_timestamp() as now
from queue.schedule s
left join lateral (
  select f.tick, f.fired_at, f.job, f.outcome, f.error
  from queue.fire f
  where f.name = s.name
  order by f.tick desc
  limit 1
) f on true
where $1::text is null or s.name = $1
order by s.name
