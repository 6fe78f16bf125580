-- lease -> dead | nothing: makes a job a dead letter, because the server keeps rejecting the job's verdict. Returns whether the job is now
-- a dead letter, or no row if the call was rejected.
-- $1 token  $2 id  $3 lane  $4 attempt  $5 crashes  $6 error
-- Safe: fenced like a verdict, under a lock on the lease. The job may already have an entry in another table, because it is in history
-- or because an operator inserted the entry manually. In this case the job is only removed from the lease. The statement writes as little
-- as possible, because the database rejects writes for this job.
with held as materialized (
  select l.token, l.ids, l.attempts, l.crashes
  from queue.lease l
  where l.token = $1 and $2::bigint = any (l.ids)
  for update
), left_over as materialized (
  select array_agg(u.id order by u.place) as ids, array_agg(u.attempts order by u.place) as attempts,
    array_agg(u.crashes order by u.place) as crashes
  from held h
  cross join lateral unnest(h.ids, h.attempts, h.crashes) with ordinality u (id, attempts, crashes, place)
  where u.id <> $2
), ended as (
  delete from queue.lease
  where token = (select h.token from held h) and (select o.ids from left_over o) is null
), shrunk as (
  update queue.lease l
  set ids = o.ids, attempts = o.attempts, crashes = o.crashes
  from left_over o
  where l.token = (select h.token from held h) and o.ids is not null
), found as materialized (
  select e.state <> 'running' or exists (select from queue.lease l where l.token <> $1 and $2 = any (l.ids)) as elsewhere,
    e.state, j.key, j.system ? 'skips' as skips
  from held h
  cross join queue.entry_of($2) e
  cross join lateral (select j.key, j.system from queue.job j where j.id = $2 offset 0) j
), died as (
  insert into queue.dead (id, died_at, lane, attempts, crashes, error)
  select $2, statement_timestamp(), $3::bigint, $4::smallint, $5::smallint, $6::text
  from found
  where not elsewhere
), freed as (
  delete from queue.active_key k
  using found f
  where k.key = f.key and k.id = $2 and (f.skips or f.state in ('completed', 'cancelled', 'expired'))
  returning k.key, k.seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
select coalesce((select not f.elsewhere from found f), false)
from held
