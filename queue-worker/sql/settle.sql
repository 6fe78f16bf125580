-- lease -> done | done_many | dead | scheduled | ready | nothing: writes many verdicts. Returns the token and job id of each rejected
-- verdict.
-- $1 tokens  $2 ids  $3 verdicts  $4 lanes  $5 attempts  $6 crashes  $7 waits in ms  $8 run times in ms
-- $9 outputs as JSON text  $10 errors  $11 ordering keys, null for jobs without a key  $12 whether the verdict frees the key
-- Safe: a verdict is accepted only while its token identifies a lease that contains the job. A slow, duplicate or zombie worker changes
-- nothing. If one call contains two verdicts on one job, exactly one verdict is accepted; the choice is unspecified. Leases are locked in
-- token order, and their latest row versions are read. A lease always contains exactly the unsettled jobs, and the verdict that empties a
-- lease deletes it.
-- The position of a released job is its id, which is unique and keeps jobs in order of age. This position is usually below the floor of
-- the lane, so claims skip the job until a scan below the floor finds it, within about a second. If the cancellation of a job was
-- requested, every verdict other than `complete` cancels the job and frees its key.
-- All recorded times are the time of the statement, not of the transaction. A handler's own transaction, which ends with this statement,
-- may have begun long before.
-- The caller passes the ordering keys although the table job contains them, because reading that table here would open every daily
-- partition. For the same reason, jobs that leave no record have a separate statement (settle_forgotten.sql). Here, the verdict on such a
-- job is rejected, and the job stays in its lease.
with input as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::smallint[], $6::smallint[], $7::float8[], $8::int[], $9::text[], $10::text[],
    $11::bigint[], $12::boolean[])
    v (token, id, verdict, lane, attempts, crashes, wait_ms, ran_ms, output, error, key, frees)
), held as materialized (
  select l.token, l.ids, l.attempts, l.crashes, l.cancelling
  from queue.lease l
  where l.token = any ($1)
  order by l.token
  for update
), listed as materialized (
  select h.token, u.id, u.attempts, u.crashes, u.place, u.id = any (h.cancelling) as cancelling
  from held h
  cross join lateral unnest(h.ids, h.attempts, h.crashes) with ordinality u (id, attempts, crashes, place)
), fenced as materialized (
  select distinct on (s.token, s.id) s.token, s.id,
    case when l.cancelling and s.verdict <> 'complete' then 'cancel' else s.verdict end as verdict,
    s.lane, s.attempts, s.crashes, s.wait_ms, s.ran_ms, s.output, s.error,
    case when s.frees or (l.cancelling and s.verdict <> 'complete') then s.key end as freed
  from input s
  join listed l on l.token = s.token and l.id = s.id
  where s.verdict in ('complete', 'retry', 'snooze', 'release', 'dead', 'cancel')
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
), finished_plainly as (
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select min(id), max(id), statement_timestamp(), lane, array_agg(id order by id)
  from fenced
  where verdict = 'complete' and output is null and attempts = 1
  group by lane, id >> 33, (id >> 20) / 86400000
), finished as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, output)
  select id, statement_timestamp(), ran_ms, attempts, verdict = 'cancel', output::jsonb
  from fenced
  where verdict = 'cancel' or (verdict = 'complete' and (output is not null or attempts <> 1))
), waiting as (
  insert into queue.scheduled (run_at, id, lane, attempts, crashes)
  select statement_timestamp() + wait_ms * interval '1 millisecond', id, lane, attempts - (verdict = 'snooze')::int, crashes
  from fenced
  where verdict in ('retry', 'snooze')
), released as (
  insert into queue.ready (lane, seq, id, attempts, crashes)
  select lane, id, id, attempts - 1, crashes
  from fenced
  where verdict = 'release'
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select id, statement_timestamp(), lane, attempts, crashes, error
  from fenced
  where verdict = 'dead'
), failed as (
  insert into queue.failure (id, attempt, at, ran_ms, error)
  select id, attempts, statement_timestamp(), ran_ms, error
  from fenced
  where verdict in ('retry', 'dead')
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
