-- done -> nothing: up to $2 jobs in the default partitions that were over before the retention. Days with a partition go as a whole.
-- $1 retention in seconds  $2 how many at most
-- Safe: only jobs whose done row is deleted here lose their payload and failures.
with over as materialized (
  delete from queue.done_default
  where ctid = any (array(
    select d.ctid
    from queue.done_default d
    -- guard: only after the retention [d.finished_at < now() - $1 * interval '1 second' => $1::float8 is not null]
    where d.finished_at < now() - $1 * interval '1 second'
    limit $2  -- guard: so many at most [$2 => $2::bigint * 2]
    for update skip locked  -- guard: locks; passes over what is locked [ skip locked]
  ))
  returning id
), over_plainly as materialized (
  delete from queue.done_many_default
  where ctid = any (array(
    select d.ctid
    from queue.done_many_default d
    where d.finished_at < now() - $1 * interval '1 second'  -- guard: plain ones only after the retention
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
  where id = any (array(select id from gone))  -- guard: payloads of those that go
), failures as (
  delete from queue.failure
  where id = any (array(select id from gone))  -- guard: failures of those that go
)
select count(*) from gone
