-- lease -> parked | done (cancelled): parks durable jobs that wait for signals. Returns the token and id of each rejected job.
-- $1 tokens  $2 ids  $3 lanes  $4 attempts  $5 waits in ms, null for no timeout
-- $6 awaited signal names of each job, as a JSON array of texts
-- Safe: fenced like a verdict, under locks on the leases in token order. A zombie worker changes nothing. Each parked job gets a hint.
-- The consumer of the hint queries signals under a newer snapshot, so it sees signals sent before or during this statement. A job whose
-- cancellation was requested is cancelled and frees its ordering key. As with a snooze, a parked job is not charged for the attempt, so
-- $4 - 1 is stored. Its number of crashes is reset to zero.
with input as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::float8[], $6::text[]) v (token, id, lane, attempts, wait_ms, names)
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
  select distinct on (l.token, l.id) l.token, l.id, s.lane, s.attempts, s.wait_ms, s.names, l.cancelling
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
), parked as (
  insert into queue.parked (id, lane, attempts, crashes, since, run_at, names)
  select f.id, f.lane, f.attempts - 1, 0, statement_timestamp(), statement_timestamp() + f.wait_ms * interval '1 millisecond',
    array(select n.name from jsonb_array_elements_text(f.names::jsonb) n (name))
  from fenced f
  where not f.cancelling
), hinted as (
  insert into queue.signal_hint (id)
  select f.id
  from fenced f
  where not f.cancelling
), finished as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
  select f.id, statement_timestamp(), 0, f.attempts, true
  from fenced f
  where f.cancelling
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = f.id) and k.id = f.id)
    from fenced f
    where f.cancelling
  ))
  returning key, seq
), key_hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select s.token, s.id
from input s
where not exists (select from fenced f where f.token = s.token and f.id = s.id)
