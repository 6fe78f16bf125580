-- done | done_many -> nothing: scans the next $2 rows of history, and deletes jobs of the type $1, whose retention is shorter than the
-- store's. Returns whether there are more rows. Returns no row if another worker is scanning, or if the type's retention is not shorter.
-- A job that finished long after jobs with similar ids, or whose history row is locked, stays until the partition is dropped.
-- $1 job type  $2 maximum number of rows  $3 the store's retention in seconds
-- Safe: only jobs whose history row is deleted here lose their payload and failures. Only one worker at a time scans the history for a
-- type, and other workers skip the scan.
with due as materialized (
  select k.pruned_to, k.history, queue.id_at(now() - k.history) as above
  from queue.retention k
  where k.job_type = $1 and k.history < $3 * interval '1 second'
  for update skip locked
), page as materialized (
  select u.pruned_to, u.history, u.above, least(
    u.above,
    (select d.id from queue.done d where d.id >= u.pruned_to and d.id < u.above order by d.id offset $2 limit 1),
    (select m.first_id from queue.done_many m where m.first_id >= u.pruned_to and m.first_id < u.above order by m.first_id offset $2 limit 1)
  ) as pruned_to_now
  from due u
), lanes as materialized (
  select distinct l.lane
  from queue.lane l
  where queue.type_of(l.job_type) = $1
), finished as materialized (
  delete from queue.done
  where id = any (array(
    select d.id
    from queue.done d
    cross join page p
    where d.id >= p.pruned_to and d.id < p.pruned_to_now and d.finished_at < now() - p.history
      and (select j.lane from queue.job j where j.id = d.id) in (select n.lane from lanes n)
    for update of d skip locked
  ))
  returning id
), finished_plainly as materialized (
  delete from queue.done_many
  where first_id = any (array(
    select m.first_id
    from queue.done_many m
    cross join page p
    where m.first_id >= p.pruned_to and m.first_id < p.pruned_to_now and m.finished_at < now() - p.history
      and m.lane in (select n.lane from lanes n)
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
), noted as (
  update queue.retention k
  set pruned_to = p.pruned_to_now
  from page p
  where k.job_type = $1 and k.pruned_to < p.pruned_to_now
)
select p.pruned_to_now < p.above from page p
