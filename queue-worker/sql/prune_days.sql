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
      and substring(i.inhrelid::regclass::text, 'job_([0-9]{8})(?:_[0-9]+)?$') < to_char(b.today, 'YYYYMMDD')  -- guard: days: only if one stays
  )
), page as materialized (
  select p.above, least(
    p.above,  -- guard: days: only those that are over
    -- guard: days: so many at most [$3 => $3 * 2]
    (select d.id from queue.done d where d.id >= $2 and d.id < p.above order by d.id offset $3 limit 1),
    -- guard: days: so many plain ones at most [greatest($3 / 10, 1) => $3]
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
    -- redundant: days: from the page's begin [d.id >= $2 and ] (for speed: those before it were looked through)
    where d.id >= $2 and d.id < p.until  -- guard: days: to the page's end [ and d.id < p.until]
      and d.finished_at < now() - coalesce(  -- guard: days: only what is over for so long [d.finished_at => '-infinity']
        -- guard: days: a type's own time [(select k .. = d.id)) => null::interval]
        (select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id)), $1 * interval '1 second')
    for update of d skip locked  -- guard: days: passes over what others hold [ skip locked]
  ))
  returning id
), over_plainly as materialized (
  delete from queue.done_many
  where first_id = any (array(
    select m.first_id
    from queue.done_many m
    cross join page p
    -- redundant: days: plain ones from the page's begin [m.first_id >= $2 and ] (for speed: those before it were looked through)
    where m.first_id >= $2 and m.first_id < p.until  -- guard: days: plain ones to the page's end [ and m.first_id < p.until]
      -- guard: days: plain ones only once they are over for so long [m.finished_at => '-infinity']
      -- guard: days: a plain one's own time [(select k.history from kept k where k.lane = m.lane) => null]
      and m.finished_at < now() - coalesce((select k.history from kept k where k.lane = m.lane), $1 * interval '1 second')
    for update of m skip locked  -- guard: days: passes over plain ones that others hold [ skip locked]
  ))
  returning ids
), gone as materialized (
  select o.id from over o
  union all
  select unnest(o.ids) from over_plainly o
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))  -- guard: days: payloads only of those pruned
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))  -- guard: days: failures only of those pruned
)
select case when p.until <> p.above then p.until end
from page p
