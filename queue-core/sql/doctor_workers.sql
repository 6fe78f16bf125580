-- Finds problems with workers, based on their heartbeats and sessions. Returns one row per problem, up to twenty per kind.
-- Safe: read-only, and never waits for a lock.
with known as materialized (
  select w.name, w.host, w.pid, w.expires_at, w.alive, w.jobs, w.started_at
  from queue.workers() w
)
select 'no_worker' as kind,
  format('no worker is alive%s', (select '; the last heartbeat expired at ' || to_char(max(w.expires_at) at time zone 'UTC',
    'YYYY-MM-DD HH24:MI:SS"Z"') from known w)) as message,
  null as fix, '{}'::jsonb as facts
where not exists (select from known w where w.alive)
union all
(select 'silent_worker',
  format('worker %s (%s:%s) has been silent since %s and holds %s jobs', w.name, w.host, w.pid,
    to_char(w.expires_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), w.jobs),
  null, jsonb_build_object('name', w.name, 'host', w.host, 'pid', w.pid, 'since', w.expires_at, 'jobs', w.jobs)
from known w
-- Reports a worker only ten seconds after its heartbeat has expired, because other workers normally recover its jobs within two seconds.
where not w.alive and w.jobs > 0 and w.expires_at < clock_timestamp() - interval '10 s'
order by w.expires_at
limit 20)
union all
(select 'late_heartbeat', format('the heartbeat of worker %s (%s:%s) is late: it expires in %s s', b.name, b.host, b.pid,
    round(date_part('epoch', b.expires_at - clock_timestamp())::numeric, 1)),
  null, jsonb_build_object('name', b.name, 'host', b.host, 'pid', b.pid, 'until', b.expires_at)
from queue.worker b
-- A worker sends a heartbeat every third of its TTL. At least two thirds of the TTL therefore normally remain until its latest heartbeat
-- expires. If less than 0.3 of the TTL remains, two heartbeats are missing.
where b.expires_at > clock_timestamp() and b.expires_at < clock_timestamp() + b.ttl * 0.3
order by b.expires_at
limit 20)
union all
select 'no_listener', format('%s workers are alive and none listens', count(*)), null, jsonb_build_object('workers', count(*))
from known w
-- Excludes workers that started less than five seconds ago, because their listeners may not have connected yet.
where w.alive and w.started_at < clock_timestamp() - interval '5 s'
  and not exists (select from pg_catalog.pg_stat_activity a where a.datname = current_database() and a.application_name = 'queue-worker listen')
having count(*) > 0
