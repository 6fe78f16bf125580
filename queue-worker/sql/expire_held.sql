-- lease -> done (expired) | done (cancelled) | ready: ends or releases leased jobs whose handler has not started and will not start.
-- Returns one row per job: true if the job expired, false if not, and null if the lease does not exist or does not list the job.
-- $1 tokens  $2 ids
-- Safe: fenced like a verdict, under locks on the leases in token order. A zombie worker changes nothing. The database's clock decides
-- whether a job has expired. A job that has not expired is released without counting its attempt. The position of a released job is its
-- id. A job whose cancellation was requested is cancelled. An ended job frees its ordering key.
with input as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[]) v (token, id)
), held as materialized (
  select l.token, l.ids, l.attempts, l.crashes, l.cancelling
  from queue.lease l
  where l.token = any ($1)
  order by l.token
  for update
), listed as materialized (
  select h.token, u.id, u.attempts, u.crashes, u.place, u.id = any (h.cancelling) is true as cancelling
  from held h
  cross join lateral unnest(h.ids, h.attempts, h.crashes) with ordinality u (id, attempts, crashes, place)
), fenced as materialized (
  select distinct on (l.token, l.id) l.token, l.id, l.attempts, l.crashes, l.cancelling, j.lane, j.key,
    l.attempts = 1 and l.crashes = 0 and queue.is_expired(j.system) as expired
  from input s
  join listed l on l.token = s.token and l.id = s.id
  cross join lateral (select j.lane, j.key, j.system from queue.job j where j.id = l.id offset 0) j
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
), finished as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, expired)
  select f.id, statement_timestamp(), 0, f.attempts - 1, true, not f.cancelling
  from fenced f
  where f.expired or f.cancelling
), released as (
  insert into queue.ready (lane, seq, id, attempts, crashes)
  select f.lane, f.id, f.id, f.attempts - 1, f.crashes
  from fenced f
  where not (f.expired or f.cancelling)
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = f.key and k.id = f.id)
    from fenced f
    where f.key is not null and (f.expired or f.cancelling)
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select s.token, s.id, f.expired and not f.cancelling as expired
from input s
left join fenced f on f.token = s.token and f.id = s.id
