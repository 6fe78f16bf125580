-- One job, wherever it is; no row when there is none.
-- $1 id  $2 whether with payload and output
-- The branches run in their order and the limit stops at the first that has the job. A ready job is found by its place: that is its id unless
-- it has entered ready a second time. Only then, as the last resort, its lane and its solo twin are looked through.
with wanted as materialized (
  select j.id, j.lane, j.key, j.max_attempts, case when $2 then j.payload end as payload, l.queue, l.job_type, l.priority
  from queue.job j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
  where j.id = $1
), entry as (
  select 'ready' as state, r.attempts, r.crashes, null::timestamptz as run_at, null::timestamptz as finished_at, null::int as ran_ms,
    null::uuid as worker, false as called_off, null::text as error, null::jsonb as output
  from wanted w
  cross join lateral (
    select r.attempts, r.crashes from queue.ready r where r.lane = w.lane and r.seq = w.id and r.id = w.id offset 0
  ) r
  union all
  select 'scheduled', s.attempts, s.crashes, s.run_at, null, null, null, false, null, null
  from queue.scheduled s
  where s.id = $1
  union all
  select case when d.cancelled then 'cancelled' else 'completed' end, d.attempts, 0::smallint, null, d.finished_at, d.ran_ms, null, false, null,
    case when $2 then d.output end
  from queue.done d
  where d.id = $1
  union all
  select 'completed', 1::smallint, 0::smallint, null, m.finished_at, null, null, false, null, null
  from queue.done_many m
  where m.first_id between ($1 >> 33) << 33 and $1 and m.last_id >= $1 and $1 = any (m.ids)
  union all
  select 'dead', d.attempts, d.crashes, null, d.died_at, null, null, false, d.error, null
  from queue.dead d
  where d.id = $1
  union all
  select 'running', u.attempts, u.crashes, null, null, null, h.worker, coalesce(u.id = any (h.called_off), false), null, null
  from queue.lease h
  cross join lateral rows from (pg_catalog.unnest(h.ids), pg_catalog.unnest(h.attempts), pg_catalog.unnest(h.crashes)) u (id, attempts, crashes)
  where $1 = any (h.ids) and u.id = $1
  union all
  select 'blocked', 0::smallint, 0::smallint, b.run_at, null, null, null, false, null, null
  from wanted w
  cross join lateral (select b.run_at from queue.blocked b where b.key = w.key and b.id = w.id offset 0) b
  union all
  select 'ready', r.attempts, r.crashes, null, null, null, null, false, null, null
  from wanted w
  cross join lateral (
    select r.attempts, r.crashes
    from queue.ready r
    where r.lane = any (array[w.lane, queue.lane_id(w.queue, w.job_type, w.priority, true)]) and r.id = w.id
    offset 0
  ) r
  limit 1
)
select w.id, w.queue, w.job_type, w.priority, e.state, e.attempts, w.max_attempts, e.crashes, e.run_at, e.finished_at, e.ran_ms, e.worker,
  e.called_off, e.error, e.output, w.payload
from wanted w
cross join entry e
