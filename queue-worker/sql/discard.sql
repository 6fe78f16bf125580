-- dead -> nothing: those of the jobs $1 that are dead letters, with payload and failures; returns them.
-- $1 ids
-- Safe: only a job whose dead row is deleted here loses its payload. A second operator waits for the row, finds it gone and does nothing, as
-- does a requeue. Rows are locked in the order of their ids. One that
-- held up its ordering key frees it.
with held as materialized (
  select d.id
  from queue.dead d
  where d.id = any ($1)
  order by d.id
  for update
), gone as materialized (
  delete from queue.dead d
  using held h
  where d.id = h.id
  returning d.id
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
select g.id from gone g
