-- The first $1 schedules in the order of their next ticks, those first of which nobody has computed it yet; and what time it is. Reads an index.
select s.name, s.definition, s.cron, extract(epoch from s.every)::float8 * 1000 as every_ms, s.tz, s.missed,
  extract(epoch from s.grace)::float8 * 1000 as grace_ms, s.since, s.next_at, s.skip_at, pg_catalog.clock_timestamp() as now
from queue.schedule s
where s.paused_at is null and s.withdrawn_at is null and s.error is null
order by s.next_at nulls first
limit $1
