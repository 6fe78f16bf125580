-- Returns up to $1 schedules in the order of their next ticks, and the current time. Schedules whose next tick is not yet computed come
-- first. The page starts after the schedule with the next tick $2 (null: not computed) and the name $3 ('' for the first page). Schedules
-- that are paused or withdrawn, or have an error, are omitted. The index schedule_by_tick provides the order.
-- $1 maximum number of schedules  $2 next tick, or null  $3 name
select s.name, s.definition, s.source, s.cron, extract(epoch from s.every)::float8 * 1000 as every_ms, s.tz, s.missed,
  extract(epoch from s.grace)::float8 * 1000 as grace_ms, s.since, s.next_at, s.skip_at, s.tried_at,
  pg_catalog.clock_timestamp() as now
from queue.schedule s
where s.paused_at is null and s.withdrawn_at is null and s.error is null
  and (coalesce(s.next_at, '-infinity'), s.name) > (coalesce($2, '-infinity'::timestamptz), $3::text)
order by coalesce(s.next_at, '-infinity'), s.name
limit $1
