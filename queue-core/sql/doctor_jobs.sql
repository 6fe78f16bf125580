-- Jobs that somebody has to look at: suspects of ending their processes, dead letters that hold up others of their ordering key, and keys whose head
-- is gone, of the first thousand with jobs that wait. A row for each, up to twenty of a kind.
-- $1 how many of the newest dead letters are looked at
-- Safe: it only reads.
with recursive waiting (key) as (
  (select b.key from queue.blocked b order by b.key limit 1)
  union all
  select (select b.key from queue.blocked b where b.key > w.key order by b.key limit 1) from waiting w where w.key is not null
)
(select 'suspect' as kind, format('job %s has ended %s processes, and waits to be tried apart', r.id, r.crashes) as says,
  null as fix, jsonb_build_object('job', r.id::text, 'crashes', r.crashes) as facts
from queue.lane l
cross join lateral (
  select r.id, r.crashes
  from queue.ready r
  where r.lane = l.lane
  order by r.seq
  limit 20
) r
where l.solo and r.crashes > 0
limit 20)
union all
(select 'key_held', format('the dead job %s holds up others of its ordering key', d.id), format('queue-worker requeue %s', d.id),
  jsonb_build_object('job', d.id::text, 'died_at', d.died_at)
from (
  select n.id, n.died_at
  from queue.dead n
  order by n.died_at desc
  limit $1
) d
cross join lateral (
  select o.key
  from queue.job o
  where o.id = d.id and o.key is not null and not coalesce(o.key_skips, false)
  limit 1
) j
cross join lateral (
  select
  from queue.blocked b
  where b.key = j.key
  limit 1
) b
order by d.died_at
limit 20)
union all
(select 'key_without_head', format('job %s waits for job %s of its ordering key, which is gone', b.id, a.id),
  format('delete from queue.active_key where key = %s and id = %s; insert into queue.key_hint (key) values (%1$s)', a.key, a.id),
  jsonb_build_object('job', b.id::text, 'head', a.id::text)
from (select w.key from waiting w where w.key is not null limit 1000) w
join queue.active_key a on a.key = w.key
cross join lateral (select b.id from queue.blocked b where b.key = w.key order by b.seq limit 1) b
where not exists (select from queue.job j where j.id = a.id)
limit 20)
