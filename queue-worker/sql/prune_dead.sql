-- dead -> nothing: up to $2 dead letters that died before their retention began, with payloads and failures; returns how many.
-- $1 retention in seconds  $2 how many at most
-- Safe: only a job whose dead row is deleted here loses its payload; one that somebody requeues or discards at the time is passed over.
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
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))
)
select count(*) from gone
