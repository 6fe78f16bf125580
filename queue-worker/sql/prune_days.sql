-- done | done_many -> nothing: scans the next $3 rows of done and a tenth as many rows of done_many, and deletes the jobs whose retention
-- has passed. Scans only day partitions that are older than $1 and are kept because many of their jobs have a longer retention. Returns
-- the id at which to continue, or null at the end. Reads only the catalog if there is no such partition.
-- $1 retention in seconds  $2 id to start at  $3 maximum number of rows
-- Safe: only jobs whose history row is deleted here lose their payload and failures. Rows locked by other transactions are skipped.
with past as materialized (
  select queue.id_at(b.today at time zone 'UTC') as above
  from (select date_trunc('day', (clock_timestamp() - $1 * interval '1 second') at time zone 'UTC') as today) b
  where exists (
    select
    from pg_inherits i
    -- On Citus, shard names end in a number after the day. The name is read with regclass, because Citus hides shards in pg_class.
    where i.inhparent = 'queue.job'::regclass
      and substring(i.inhrelid::regclass::text, 'job_([0-9]{8})(?:_[0-9]+)?$') < to_char(b.today, 'YYYYMMDD')
  )
), page as materialized (
  select p.above, least(
    p.above,
    (select d.id from queue.done d where d.id >= $2 and d.id < p.above order by d.id offset $3 limit 1),
    (select m.first_id from queue.done_many m where m.first_id >= $2 and m.first_id < p.above order by m.first_id offset greatest($3 / 10, 1) limit 1)
  ) as until
  from past p
), kept as materialized (
  select distinct l.lane, k.history
  from queue.retention k
  join queue.lane l on queue.type_of(l.job_type) = k.job_type
), finished as materialized (
  delete from queue.done
  where id = any (array(
    select d.id
    from queue.done d
    cross join page p
    where d.id >= $2 and d.id < p.until
      and d.finished_at < now() - coalesce(
        (select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id)), $1 * interval '1 second')
    for update of d skip locked
  ))
  returning id
), finished_plainly as materialized (
  delete from queue.done_many
  where first_id = any (array(
    select m.first_id
    from queue.done_many m
    cross join page p
    where m.first_id >= $2 and m.first_id < p.until
      and m.finished_at < now() - coalesce((select k.history from kept k where k.lane = m.lane), $1 * interval '1 second')
    for update of m skip locked
  ))
  returning ids
), deleted as materialized (
  select o.id from finished o
  union all
  select unnest(o.ids) from finished_plainly o
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from deleted g))
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from deleted g))
)
select case when p.until <> p.above then p.until end
from page p
