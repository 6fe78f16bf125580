-- done | done_many -> nothing: variant of prune_done.sql for stores in which some job types have a separate retention. Returns the number
-- of deleted jobs.
-- $1 retention of all other types in seconds  $2 maximum number of rows
-- Safe: only jobs whose history row is deleted here lose their payload and failures.
with kept as materialized (
  select distinct l.lane, k.history
  from queue.retention k
  join queue.lane l on queue.type_of(l.job_type) = k.job_type
), finished as materialized (
  delete from queue.done_default
  where ctid = any (array(
    select d.ctid
    from queue.done_default d
    where d.finished_at < now() - coalesce(
      (select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id)), $1 * interval '1 second')
    limit $2
    for update skip locked
  ))
  returning id
), finished_plainly as materialized (
  delete from queue.done_many_default
  where ctid = any (array(
    select d.ctid
    from queue.done_many_default d
    where d.finished_at < now() - coalesce((select k.history from kept k where k.lane = d.lane), $1 * interval '1 second')
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
