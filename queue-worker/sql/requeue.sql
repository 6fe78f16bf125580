-- dead -> ready | blocked: those of the jobs $1 that are dead letters, to the end of their own lanes with no attempt and no crash;
-- returns each with its queue. Their failures stay.
-- $1 ids
-- Safe: only what is deleted from dead here enters ready. A second operator waits for the row, finds it gone and does nothing, as does a
-- discard; a claim sees the job at our commit. Rows are locked in the order of their ids. A job under suspicion leaves its solo lane: the
-- operator says that it is mended. One that holds up its ordering key keeps its place; one whose key went on without it goes to the end of the
-- key's line, under the key's lock.
with held as materialized (
  select d.id
  from queue.dead d
  where d.id = any ($1)
  order by d.id
  for update
), risen as materialized (
  delete from queue.dead d
  using held h
  cross join lateral (select j.lane, j.key from queue.job j where j.id = h.id offset 0) j
  where d.id = h.id
  returning d.id, j.lane, j.key,
    j.key is not null and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id) as is_late
), entered as (
  insert into queue.ready (lane, seq, id)
  select r.lane, queue.next_id(), r.id
  from risen r
  where not r.is_late
  order by r.id
), locked as materialized (
  select queue.lock_key(s.stripe)
  from (select distinct r.key & 1023 as stripe from risen r where r.is_late order by 1) s
), queued_up as (
  insert into queue.blocked (key, seq, id, lane)
  select r.key, pg_catalog.nextval('queue.key_seq'), r.id, r.lane
  from (select pg_catalog.count(*) from locked) l
  cross join (select r.* from risen r where r.is_late order by r.id) r
), hinted as (
  insert into queue.key_hint (key)
  select distinct r.key
  from risen r
  where r.is_late
)
select r.id, l.queue
from risen r
cross join lateral (select l.queue from queue.lane l where l.lane = r.lane limit 1) l
