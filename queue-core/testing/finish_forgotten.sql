-- ready -> nothing: the job whose entry ($1 lane, $2 seq, $3 id) this transaction holds completed, and is to leave no record; returns the id, or
-- nothing if the entry is gone.
-- $4 the ordering key that goes on without the job from now on, or null
-- Safe: as finish_one.sql: everything follows from the deleted entry. It is a statement of its own because that opens each day that there is
-- for what it deletes, and this the one day of the job.
with fenced as materialized (
  delete from queue.ready
  where lane = $1 and seq = $2 and id = $3
  returning id
), forgotten as (
  delete from queue.job
  where id = $3 and exists (select from fenced)
), forgotten_failures as (
  delete from queue.failure
  where id = $3 and exists (select from fenced)
), freed as (
  delete from queue.active_key a
  using fenced f
  where a.key = $4::bigint and a.id = f.id
  returning a.key, a.seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select id
from fenced
