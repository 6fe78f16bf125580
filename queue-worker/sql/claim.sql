-- ready -> lease: claims up to $6 jobs from the lanes $3, in array order. Claims at most $5 jobs per lane, starting at the lane's floor
-- $4. Returns one row per claimed job. The payload is null if it is larger than $7. All columns of the table job are null if the id is
-- outside the range $9 to $10.
-- $1 token, random, chosen by the worker  $2 worker  $3 lanes  $4 floors  $5 maximum number of jobs per lane  $6 maximum number of jobs
-- $7 maximum payload size in bytes; larger payloads are read separately (unread_payloads.sql)  $8 lanes in which each job has a separate
-- lease
-- $9 first id and $10 end of the id range whose jobs this statement reads, so that the executor opens only the partitions of the range;
-- claimed jobs outside the range are read separately
-- The lanes $8 contain transactional jobs. A transactional job locks its lease until its commit is durable, and in a shared lease the
-- lock would block the other jobs. The token of a separate lease consists of the first half of $1 and the job id.
-- Safe: rows are locked with SKIP LOCKED and deleted in one statement, so two claims never take the same job. A worker whose heartbeat
-- has expired claims nothing. Runs with synchronous_commit=off: a claim lost in a crash leaves its jobs ready. The claim counts the
-- attempt, so attempts whose process crashes are counted too. `offset 0` makes the plan look up payloads one by one. Otherwise a plan
-- made while `job` was empty would scan the whole table later.
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
