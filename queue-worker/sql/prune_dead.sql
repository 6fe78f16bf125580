-- dead -> nothing: up to $2 dead letters that died before their retention began, with payloads and failures; returns how many.
-- $1 retention in seconds  $2 how many at most
-- Safe: only a job whose dead row is deleted here loses its payload; one that somebody requeues or discards at the time is passed over.
-- One that held up its ordering key frees it: nobody could decide over it any more.
with gone as materialized (
  delete from queue.dead
  where id = any (array(
    select d.id
    from queue.dead d
    -- guard: only what died so long ago [d.died_at < now() - $1 * interval '1 second' => $1::float8 is not null]
    where d.died_at < now() - $1 * interval '1 second'
    order by d.died_at  -- guard: the oldest first [died_at => died_at desc]
    limit $2  -- guard: so many at most [$2 => $2::bigint * 2]
    for update skip locked  -- guard: locks; passes over what is locked [ skip locked]
  ))
  returning id
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    -- guard: nobody else's [ and k.id = g.id]
    select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = g.id) and k.id = g.id)
    from gone g  -- guard: one that held up its key frees it [gone g => gone g where false]
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select f.key, f.seq
  from freed f  -- guard: a freed key is left a hint [freed f => freed f where false]
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))  -- guard: payloads only of those pruned
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))  -- guard: failures only of those pruned
)
select count(*) from gone
