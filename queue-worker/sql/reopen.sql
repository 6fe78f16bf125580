-- done | done_many -> ready | blocked: the job $1, if it is completed or cancelled, to the end of its lane or ordering key
-- with no attempt; returns it with its queue. Its failures stay, its output goes, and its
-- checkpoint with it: the job is to begin anew.
-- $1 id
-- Safe: it enters ready only if its done row is deleted here, or its id is taken out of its done_many row. A second operator waits for the row
-- and then finds the job gone from it. If at that moment the row has become one of this job alone, neither branch takes it: the caller looks,
-- sees it completed and tries again. Pruning deletes the same row before it deletes the payload, so one of us two gets neither.
with reopened as materialized (
  delete from queue.done d
  where d.id = $1
  returning d.id
), struck as materialized (
  update queue.done_many m
  set ids = pg_catalog.array_remove(m.ids, $1),
    first_id = (pg_catalog.array_remove(m.ids, $1))[1],
    last_id = (pg_catalog.array_remove(m.ids, $1))[pg_catalog.cardinality(m.ids) - 1]
  where m.first_id between ($1 >> 33) << 33 and $1 and m.last_id >= $1 and $1 = any (m.ids) and pg_catalog.cardinality(m.ids) > 1
  returning $1 as id
), emptied as materialized (
  delete from queue.done_many m
  where m.first_id = $1 and m.last_id = $1
  returning m.first_id as id
), back as materialized (
  select j.id, j.lane, j.key
  from queue.job j
  where j.id = $1 and exists (select from reopened union all select from struck union all select from emptied)
), entered as (
  insert into queue.ready (lane, seq, id)
  select b.lane, queue.next_id(), b.id
  from back b
  where b.key is null
), locked as materialized (
  select queue.lock_key(b.key)
  from back b
  where b.key is not null
), queued_up as (
  insert into queue.blocked (key, seq, id, lane)
  select b.key, pg_catalog.nextval('queue.key_seq'), b.id, b.lane
  from locked l
  cross join back b
), hinted as (
  insert into queue.key_hint (key)
  select b.key
  from back b
  where b.key is not null
), forgotten as (
  delete from queue.progress
  where id = any (array(select b.id from back b))
)
select b.id, l.queue
from back b
cross join lateral (select l.queue from queue.lane l where l.lane = b.lane limit 1) l
