-- done | done_many -> nothing: in days that ended before the retention and stay, because many of their jobs outlive them, the next $3 rows of
-- the history are looked through for jobs that are over for so long; returns after which id to go on, or null. Without such a day it looks at
-- the catalog only.
-- $1 retention in seconds  $2 the id from which on  $3 how many rows at most
-- Safe: only jobs whose done row is deleted here lose their payload and failures; rows that others hold are passed over.
with past as materialized (
  select queue.id_at(b.today at time zone 'UTC') as above
  from (select date_trunc('day', (clock_timestamp() - $1 * interval '1 second') at time zone 'UTC') as today) b
  where exists (
    select
    from pg_inherits i
    -- On Citus there is a number behind the day, and these are hidden from pg_class.
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
), over as materialized (
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
), over_plainly as materialized (
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
), gone as materialized (
  select o.id from over o
  union all
  select unnest(o.ids) from over_plainly o
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))
)
select case when p.until <> p.above then p.until end
from page p
