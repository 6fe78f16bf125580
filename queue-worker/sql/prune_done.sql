-- done -> nothing: up to $2 jobs in the default partitions that were over before the retention. Days with a partition go as a whole.
-- $1 retention in seconds  $2 how many at most
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
), payloads as (
  delete from queue.job
  where id = any (array(select id from over))
), failures as (
  delete from queue.failure
  where id = any (array(select id from over))
)
select count(*) from over
