-- lease -> ready | dead | done, cancelled: the second half of recovery, in the transaction that locked the leases $1.
-- $1 tokens  $2 how many crashes make a dead letter
-- Safe: a statement of its own, so that its snapshot is newer than the locks: what was settled before them is no longer in the leases.
-- In one statement with the lock it would bring back completed jobs. Every job goes to its lane's solo twin, where it runs apart from
-- all that never ended a process, and after a second crash alone, so that the third convicts the right one.
-- A dead letter frees its ordering key only if the job says so; every other job stays the head of its.
-- Those that are cancelling are cancelled, and free their keys. No row can make it fail, whatever a lease lists: one bad lease would stop the
-- recovery of all.
with taken as materialized (
  delete from queue.lease
  where token = any ($1)  -- guard: only the leases locked [token = any ($1) => $1::uuid[] is not null]
  returning claimed_at, ids, attempts, crashes, cancelling
), fallen as materialized (
  -- guard: counts the crash [least(coalesce(u.crashes, 0) + 1, 32767)::smallint => u.crashes]
  -- guard: an attempt that is not known is the first [coalesce(u.attempts, 1::smallint) as attempts => u.attempts]
  -- guard: crashes that are not known are none [coalesce(u.crashes, 0) + 1, 32767) => u.crashes + 1, 32767)]
  -- guard: counts no more crashes than a smallint has [least(coalesce(u.crashes, 0) + 1, 32767) => (coalesce(u.crashes, 0) + 1)]
  select u.id, coalesce(u.attempts, 1::smallint) as attempts, least(coalesce(u.crashes, 0) + 1, 32767)::smallint as crashes,
    l.queue, l.job_type, l.priority, t.claimed_at,
    -- guard: and only of keys that skip [case .. end => j.key]; and those that were cancelled [ or u.id = any (t.cancelling)]
    case when j.key_skips or u.id = any (t.cancelling) then j.key end as freed,
    coalesce(u.id = any (t.cancelling), false) as cancelling
  from taken t
  cross join lateral unnest(t.ids, t.attempts, t.crashes) u (id, attempts, crashes)
  -- guard: each its own lane [= u.id offset 0 => > 0 limit 1]
  cross join lateral (select j.lane, j.key, j.key_skips from queue.job j where j.id = u.id offset 0) j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l  -- guard: once each [ limit 1]
), solo as materialized (
  select k.*, queue.meet_lane(k.queue, k.job_type, k.priority, true) as lane  -- guard: to the solo twin [true => false]
  from (select distinct queue, job_type, priority from fallen) k  -- guard: each twin once [ distinct]
), returned as (
  insert into queue.ready (lane, seq, id, attempts, crashes)
  select s.lane, queue.next_id(), f.id, f.attempts, f.crashes  -- guard: a new place [queue.next_id() => f.id]
  from fallen f
  -- guard: returned: to its own queue [s.queue = f.queue and ]; returned: to its own type [ and s.job_type = f.job_type]
  -- guard: returned: to its own priority [ and s.priority = f.priority]
  join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority
  where f.crashes < $2  -- guard: returned: with few crashes [f.crashes < $2 => $2::smallint is not null]
    and not f.cancelling  -- guard: what was cancelled does not return
  order by f.id  -- guard: in the order of ids
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select f.id, now(), s.lane, f.attempts, f.crashes, 'the process ended during the attempt, ' || f.crashes || ' times'
  from fallen f
  -- guard: died: of its own queue [s.queue = f.queue and ]; died: of its own type [ and s.job_type = f.job_type]
  -- guard: died: of its own priority [ and s.priority = f.priority]
  join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority
  where f.crashes >= $2  -- guard: died: of many crashes [where f.crashes >= $2]
    and not f.cancelling
  on conflict do nothing  -- guard: a job that is dead already stops no recovery
), cancelled as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
  select id, now(), 0, attempts, true
  from fallen
  where cancelling  -- guard: only what is cancelling is cancelled
  on conflict do nothing  -- guard: a job that is over already stops no recovery
), failed as (
  insert into queue.failure (id, attempt, at, ran_ms, error)
  -- guard: a long run fits [least(( .. 2147483647) => ((extract(epoch from now()) - extract(epoch from claimed_at)) * 1000)]
  -- guard: a run that has not begun by the clock fits [greatest(least( => (least(]
  -- also: a run that has not begun by the clock fits [, 0)::int => )::int]
  select id, attempts, now(), greatest(least((extract(epoch from now()) - extract(epoch from claimed_at)) * 1000, 2147483647), 0)::int,
    'the process ended during the attempt'
  from fallen
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = f.freed and k.id = f.id)
    from fallen f
    where (f.crashes >= $2 or f.cancelling) and f.freed is not null  -- guard: only the dead free their keys [(f.crashes >= $2 or f.cancelling) and ]
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed  -- guard: a freed key is left a hint [freed => freed where false]
)
select queue, count(*) as jobs, array_agg(id) filter (where crashes >= $2 and not cancelling) as dead,
  count(*) filter (where cancelling) as cancelled, queue.type_of(job_type) as job_type,
  array_agg(id) filter (where crashes >= $2 or cancelling) as over
from fallen
group by queue, queue.type_of(job_type)
