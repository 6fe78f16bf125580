-- active_key -> key_hint: frees ordering keys whose head is a job that no longer exists. Checks the next $2 keys with blocked jobs after
-- the key $1. Returns one row per freed key: the last key scanned (null at the end), the head, and the first blocked job with its queue
-- and type. If no key was freed, returns one row with only the last key scanned.
-- $1 key to start after  $2 maximum number of keys
-- Safe: a head is written in the transaction of its job or later, and is deleted with its job or earlier. A snapshot therefore shows a
-- head without its job only if an operator deleted rows. Locked rows are skipped. The hint releases the key's blocked jobs, as it does
-- whenever a head has ended.
with recursive waiting (key, nth) as (
  (select b.key, 1 from queue.blocked b where b.key > $1 order by b.key limit 1)
  union all
  select (select b.key from queue.blocked b where b.key > w.key order by b.key limit 1), w.nth + 1
  from waiting w
  where w.key is not null and w.nth < $2
), headless as materialized (
  select a.ctid as at
  from waiting w
  join queue.active_key a on a.key = w.key
  where not exists (select from queue.job j where j.id = a.id offset 0)
  for update of a skip locked
), freed as (
  delete from queue.active_key
  where ctid = any (array(select h.at from headless h))
  returning key, id
), hinted as (
  insert into queue.key_hint (key)
  select f.key
  from freed f
)
select (select w.key from waiting w order by w.nth desc limit 1) as last, f.id as head, b.id as job, l.queue, queue.type_of(l.job_type) as job_type
from (select) one
left join freed f on true
left join lateral (select b.id, b.lane from queue.blocked b where b.key = f.key order by b.seq limit 1) b on true
left join lateral (select l.queue, l.job_type from queue.lane l where l.lane = b.lane limit 1) l on true
