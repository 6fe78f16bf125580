-- lease -> nothing: settles completed jobs that leave no record. Returns the token and id of each rejected job.
-- $1 tokens  $2 ids  $3 ordering keys to free, null for jobs without such a key  $4 lowest of the ids  $5 highest of the ids
-- Safe: fenced like a verdict, under locks on the leases in token order. A zombie worker changes nothing. A requested cancellation has no
-- effect on a completed job. The bounds on the ids restrict the deletes to the daily partitions of the jobs. The statement is separate
-- from settle.sql, because a statement without bounds locks every partition and takes twice as long.
with input as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[], $3::bigint[]) v (token, id, freed)
), held as materialized (
  select l.token, l.ids, l.attempts, l.crashes
  from queue.lease l
  where l.token = any ($1)
  order by l.token
  for update
), listed as materialized (
  select h.token, u.id, u.attempts, u.crashes, u.place
  from held h
  cross join lateral unnest(h.ids, h.attempts, h.crashes) with ordinality u (id, attempts, crashes, place)
), fenced as materialized (
  select distinct on (s.token, s.id) s.token, s.id, s.freed
  from input s
  join listed l on l.token = s.token and l.id = s.id
), left_over as materialized (
  select l.token, array_agg(l.id order by l.place) as ids, array_agg(l.attempts order by l.place) as attempts,
    array_agg(l.crashes order by l.place) as crashes
  from listed l
  left join fenced f on f.token = l.token and f.id = l.id
  where f.id is null
  group by l.token
), ended as (
  delete from queue.lease
  where token = any (array(select token from held except select token from left_over))
), shrunk as (
  update queue.lease l
  set ids = o.ids, attempts = o.attempts, crashes = o.crashes
  from left_over o
  where l.token = any (array(select token from left_over)) and l.token = o.token
), forgotten as (
  delete from queue.job
  where id = any (array(select id from fenced)) and id >= $4 and id <= $5
), forgotten_failures as (
  delete from queue.failure
  where id = any (array(select id from fenced)) and id >= $4 and id <= $5
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = f.freed and k.id = f.id)
    from fenced f
    where f.freed is not null
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select s.token, s.id
from input s
where not exists (select from fenced f where f.token = s.token and f.id = s.id)
