-- done -> nothing: as prune_done, where some job types have a retention of their own.
-- $1 retention of all others in seconds  $2 how many at most
-- Safe: only jobs whose done row is deleted here lose their payload and failures.
with kept as materialized (
  select distinct l.lane, k.history
  from queue.retention k
  join queue.lane l on queue.type_of(l.job_type) = k.job_type  -- guard: the lanes of that type [= k.job_type => is not null]
), over as materialized (
  delete from queue.done_default
  where ctid = any (array(
    select d.ctid
    from queue.done_default d
    where d.finished_at < now() - coalesce(  -- guard: only what is over for so long [d.finished_at => '-infinity']
      -- guard: a type's own time [(select k .. = d.id)) => null::interval]
      -- guard: that of its own type [= (select j.lane from queue.job j where j.id = d.id) => is not null order by k.history desc limit 1]
      (select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id)), $1 * interval '1 second')
    limit $2  -- guard: so many at most [$2 => $2::bigint * 2]
    for update skip locked  -- guard: locks; passes over what is locked [ skip locked]
  ))
  returning id
), over_plainly as materialized (
  delete from queue.done_many_default
  where ctid = any (array(
    select d.ctid
    from queue.done_many_default d
    -- guard: plain ones: a type's own time [(select k.history from kept k where k.lane = d.lane) => null]
    -- guard: plain ones: that of its own type [where k.lane = d.lane => order by k.history desc limit 1]
    -- guard: plain ones: only what is over for so long [d.finished_at => '-infinity']
    where d.finished_at < now() - coalesce((select k.history from kept k where k.lane = d.lane), $1 * interval '1 second')
    limit $2 / 10  -- guard: so many plain ones at most [/ => *]
    for update skip locked  -- guard: locks plain ones; passes over plain ones that are locked [ skip locked]
  ))
  returning ids
), gone as materialized (
  select id from over
  union all
  select unnest(ids) from over_plainly
), payloads as (
  delete from queue.job
  where id = any (array(select id from gone))  -- guard: payloads only of those pruned
), failures as (
  delete from queue.failure
  where id = any (array(select id from gone))  -- guard: failures only of those pruned
)
select count(*) from gone
