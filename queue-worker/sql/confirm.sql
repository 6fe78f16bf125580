-- Reads the jobs of a claim under limits once their lease is durable. Returns the columns of claim.sql and the database's time in
-- milliseconds.
-- $1 token  $2 lanes  $3 positions  $4 ids, sorted  $5 attempts  $6 crashes  $7 maximum payload size in bytes, as in claim.sql
-- Safe: an empty logical decoding message makes this commit flush the WAL, which also makes the preceding claim durable. If the claim was
-- lost in a server crash, the lease does not exist, so none of its jobs starts. The first and the last id limit the partitions that the
-- executor opens.
with durable as materialized (
  select set_config('synchronous_commit', 'on', true) as setting, pg_logical_emit_message(true, 'queue', '') as place
), held as materialized (
  -- The concatenation detoasts the ids once instead of once per job. If the lease contains exactly the claimed jobs, the ids are not
  -- searched.
  select l.claimed_at, l.ids || '{}' as ids, l.ids = $4::bigint[] as is_whole
  from durable d
  cross join queue.lease l
  where d.place is not null and l.token = $1
)
select t.lane, t.seq, t.id, t.attempts, t.crashes, j.max_attempts,
  case when octet_length(j.payload) <= $7 then j.payload end as payload, j.key, j.meta::text as meta, j.system::text as system,
  h.claimed_at, queue.clock_ms() as now_ms
from held h
cross join unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::smallint[]) t (lane, seq, id, attempts, crashes)
left join lateral (
  select j.max_attempts, j.payload::text as payload, j.key, j.meta, j.system
  from queue.job j
  where j.id = t.id and j.id >= ($4::bigint[])[1] and j.id <= ($4::bigint[])[cardinality($4::bigint[])] offset 0
) j on true
where h.is_whole or t.id = any (h.ids)
