-- done | done_many -> nothing: deletes from the default partitions jobs that finished more than $1 seconds ago. Deletes up to $2 rows of
-- done and a tenth as many rows of done_many. Other partitions are dropped as a whole. Returns the number of deleted jobs.
-- $1 retention in seconds  $2 maximum number of rows
-- Safe: only jobs whose history row is deleted here lose their payload and failures.
with finished as materialized (
  delete from queue.done_default
  where ctid = any (array(
    select d.ctid
    from queue.done_default d
    where d.finished_at < now() - $1 * interval '1 second'
    limit $2
    for update skip locked
  ))
  returning id
), finished_plainly as materialized (
  delete from queue.done_many_default
  where ctid = any (array(
    select d.ctid
    from queue.done_many_default d
    where d.finished_at < now() - $1 * interval '1 second'
    limit $2 / 10
    for update skip locked
  ))
  returning ids
), deleted as materialized (
  select id from finished
  union all
  select unnest(ids) from finished_plainly
), payloads as (
  delete from queue.job
  where id = any (array(select id from deleted))
), failures as (
  delete from queue.failure
  where id = any (array(select id from deleted))
)
select count(*) from deleted
