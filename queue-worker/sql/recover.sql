-- lease -> ready | dead | done (cancelled): second half of recovery. Recovers the jobs of the leases $1, which this transaction has
-- locked. Returns one row per queue and job type: the number of recovered jobs, the ids of the jobs that became dead letters, the number
-- of cancelled jobs, and the ids of the dead letters and cancelled jobs together. An empty list of ids is null.
-- $1 tokens  $2 number of crashes after which a job becomes a dead letter
-- Safe: this is a separate statement, so that its snapshot is newer than the locks on the leases. Jobs that were settled before the
-- leases were locked are then no longer in the leases. A single statement that also acquired the locks would restore such jobs. A job
-- that becomes ready moves to the quarantine lane of its queue, type and priority. There it runs apart from jobs that never crashed.
-- After a second crash the job runs alone, so that the third crash identifies the right job. A dead letter frees its ordering key under
-- the policy `skip`, and otherwise stays the head of the key, like a job that returns to ready. Jobs whose cancellation was requested are
-- cancelled, and free their keys. No content of a lease row can make the statement fail. Otherwise one bad lease would stop all recovery.
with taken as materialized (
  delete from queue.lease
  where token = any ($1)
  returning claimed_at, ids, attempts, crashes, cancelling
), fallen as materialized (
  select u.id, coalesce(u.attempts, 1::smallint) as attempts, least(coalesce(u.crashes, 0) + 1, 32767)::smallint as crashes,
    l.queue, l.job_type, l.priority, t.claimed_at,
    case when j.system ? 'skips' or u.id = any (t.cancelling) then j.key end as freed,
    coalesce(u.id = any (t.cancelling), false) as cancelling
  from taken t
  cross join lateral unnest(t.ids, t.attempts, t.crashes) u (id, attempts, crashes)
  cross join lateral (select j.lane, j.key, j.system from queue.job j where j.id = u.id offset 0) j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
), solo as materialized (
  select k.*, queue.ensure_lane(k.queue, k.job_type, k.priority, true) as lane
  from (select distinct queue, job_type, priority from fallen) k
), returned as (
  insert into queue.ready (lane, seq, id, attempts, crashes)
  select s.lane, queue.next_id(), f.id, f.attempts, f.crashes
  from fallen f
  join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority
  where f.crashes < $2
    and not f.cancelling
  order by f.id
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select f.id, now(), s.lane, f.attempts, f.crashes, 'the process ended during the attempt, ' || f.crashes || ' times'
  from fallen f
  join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority
  where f.crashes >= $2
    and not f.cancelling
  on conflict do nothing
), cancelled as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
  select id, now(), 0, attempts, true
  from fallen
  where cancelling
  on conflict do nothing
), failed as (
  insert into queue.failure (id, attempt, at, ran_ms, error)
  select id, attempts, now(), greatest(least((extract(epoch from now()) - extract(epoch from claimed_at)) * 1000, 2147483647), 0)::int,
    'the process ended during the attempt'
  from fallen
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = f.freed and k.id = f.id)
    from fallen f
    where (f.crashes >= $2 or f.cancelling) and f.freed is not null
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select queue, count(*) as jobs, array_agg(id) filter (where crashes >= $2 and not cancelling) as dead,
  count(*) filter (where cancelling) as cancelled, queue.type_of(job_type) as job_type,
  array_agg(id) filter (where crashes >= $2 or cancelling) as over
from fallen
group by queue, queue.type_of(job_type)
