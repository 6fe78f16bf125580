-- dead -> nothing: up to $2 dead letters that died before their retention began, with payloads and failures; returns how many.
-- $1 retention in seconds  $2 how many at most
-- Safe: only a job whose dead row is deleted here loses its payload; one that somebody requeues or discards at the time is passed over.
-- One that held up its ordering key frees it: nobody could decide over it any more.
with gone as materialized (
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
    from gone g
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select f.key, f.seq
  from freed f
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))
)
select count(*) from gone
