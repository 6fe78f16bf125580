-- dead -> nothing: deletes up to $2 dead letters older than their retention, with payloads and failures. Returns the number of deleted
-- dead letters.
-- $1 retention in seconds  $2 maximum number of jobs
-- Safe: only a job whose dead row is deleted here loses its payload. A job that is being requeued or discarded is skipped. A deleted dead
-- letter frees the ordering key that it blocks, because no operator can requeue the job later.
with deleted as materialized (
  delete from queue.dead
  where id = any (array(
    select d.id
    from queue.dead d
    where d.died_at < now() - $1 * interval '1 second'
    order by d.died_at
    limit $2
    for update skip locked
  ))
  returning id
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = g.id) and k.id = g.id)
    from deleted g
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select f.key, f.seq
  from freed f
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from deleted g))
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from deleted g))
)
select count(*) from deleted
