-- active_key -> key_hint: ordering keys whose head is no job, among the next $2 keys with blocked jobs after the key $1: they go on. A row for each:
-- the last key that was looked at, or null at the end, the head, and the first job that is blocked, with its queue and type. Without any, one row.
-- $1 after this key  $2 how many at most
-- Safe: a head is written in the transaction of its job, or later, and goes with it, or before; so one snapshot shows it without its job only where
-- rows were deleted by hand. Rows that others have locked are passed over. What is blocked in a key waits for the hint, as after any head.
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
