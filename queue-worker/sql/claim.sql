-- ready -> lease: up to $6 jobs of the lanes $3, in the order of the lanes, each lane from its floor $4 on and at most $5 of it.
-- $1 token, random, chosen by the worker  $2 worker  $3 lanes  $4 floors  $5 how many of each lane  $6 how many in all  $7 the most bytes of a
-- payload: one that has more is left out, and read apart (left_out.sql)  $9 from which id on, $10 up to which job is read here: the executor
-- opens the days between only; others are read apart  $8 of which lanes each job has a lease of its own: a transactional
-- job locks its lease until its commit is on the disk, which would keep the others of the lease waiting. Its token is the first half of $1 and its id
-- Safe: rows are locked with SKIP LOCKED and deleted in one statement, so two claims never take the same job; a worker whose heartbeat has
-- expired takes none. Runs with synchronous_commit=off: a lost claim is a ready job. The attempt is counted here, so that one which ends
-- with its process has been counted. Payloads are probed one by one (offset 0 sees to it): a plan made while job was empty must not read all
-- of it later.
with taken as materialized (
  delete from queue.ready
  where ctid = any (array(
    select p.ctid
    from unnest($3::bigint[], $4::bigint[], $5::int[]) l (lane, floor, most)
    cross join lateral (
      select r.ctid
      from queue.ready r
      where r.lane = l.lane and r.seq >= l.floor
      order by r.seq
      limit l.most
      for update skip locked
    ) p
    where exists (select from queue.worker w where w.id = $2 and w.expires_at > now())
    limit $6
  ))
  returning lane, seq, id, least(attempts + 1, 32767)::smallint as attempts, crashes
), leased as (
  insert into queue.lease (token, worker, lane, ids, attempts, crashes)
  select $1::uuid, $2::uuid, case when min(lane) = max(lane) then min(lane) end, array_agg(id), array_agg(attempts), array_agg(crashes)
  from (select * from taken where lane <> all ($8::bigint[]) order by id) t
  having count(*) > 0
  union all
  select encode(substr(uuid_send($1), 1, 8) || int8send(id), 'hex')::uuid, $2, lane, array[id], array[attempts], array[crashes]
  from taken
  where lane = any ($8)
)
select t.lane, t.seq, t.id, t.attempts, t.crashes, j.max_attempts,
  case when octet_length(j.payload) <= $7 then j.payload end as payload, j.key, j.meta::text as meta, j.system::text as system,
  now() as claimed_at
from taken t
left join lateral (
  select j.max_attempts, j.payload::text as payload, j.key, j.meta, j.system
  from queue.job j
  where j.id = t.id and j.id >= $9 and j.id < $10 offset 0
) j on true
