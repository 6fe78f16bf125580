-- done -> nothing: deletes up to $2 jobs in the default partitions that finished before the retention. Other partitions are dropped as a whole.
-- $1 retention in seconds  $2 maximum number of jobs
-- Safe: only jobs whose done row is deleted here lose their payload and failures.
with over as materialized (
  delete from queue.done_default
  where ctid = any (array(
    select d.ctid
    from queue.done_default d
    where d.finished_at < now() - $1 * interval '1 second'
    limit $2
    for update skip locked
  ))
  returning id
), over_plainly as materialized (
  delete from queue.done_many_default
  where ctid = any (array(
    select d.ctid
    from queue.done_many_default d
    where d.finished_at < now() - $1 * interval '1 second'
    limit $2 / 10
    for update skip locked
  ))
  returning ids
), gone as materialized (
  select id from over
  union all
  select unnest(ids) from over_plainly
), payloads as (
  delete from queue.job
  where id = any (array(select id from gone))
), failures as (
  delete from queue.failure
  where id = any (array(select id from gone))
)
select count(*) from gone
