-- ready -> nothing: completes a job without keeping a record. This transaction has locked the job's row in ready. Returns the id, or no
-- row if the row in ready no longer exists.
-- $1 lane  $2 seq  $3 id  $4 ordering key that the job frees, or null
-- Safe: as in finish_one.sql, all writes depend on the deletion of the row in ready. The statement is separate, because its deletes open
-- the partitions of all days, while finish_one.sql opens only the partition of the job's day.
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
