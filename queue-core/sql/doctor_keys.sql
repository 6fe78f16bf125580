-- Finds ordering keys whose head, the job named by the key's row in active_key, no longer exists. Checks the first thousand keys with
-- blocked jobs. Returns one row per key, up to twenty.
-- Safe: read-only. `offset 0` forces a lookup per job, because a plan made before the first key existed would scan all jobs.
with recursive waiting (key) as (
  (select b.key from queue.blocked b order by b.key limit 1)
  union all
  select (select b.key from queue.blocked b where b.key > w.key order by b.key limit 1) from waiting w where w.key is not null
)
select 'key_without_head' as kind, format('job %s waits for job %s of its ordering key, which is gone', b.id, a.id) as message,
  format('delete from queue.active_key where key = %s and id = %s; insert into queue.key_hint (key) values (%1$s)', a.key, a.id) as fix,
  jsonb_build_object('job', b.id::text, 'head', a.id::text) as facts
from (select w.key from waiting w where w.key is not null limit 1000) w
join queue.active_key a on a.key = w.key
cross join lateral (select b.id from queue.blocked b where b.key = w.key order by b.seq limit 1) b
where not exists (select from queue.job j where j.id = a.id offset 0)
limit 20
