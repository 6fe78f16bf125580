-- Reads the jobs $1 whose payloads a claim did not return. Returns payloads in id order up to a total size of $2 bytes, but at least one
-- payload. The other jobs are marked as unread. A job that has been deleted is returned with its id only.
-- $1 ids, sorted; the first and the last id limit the partitions that the executor opens  $2 bytes
-- Safe: read-only. Reads at most one payload more than it returns. The caller holds the jobs under a lease.
with recursive read (nth, bytes) as (
  select 0, 0::bigint
  union all
  select r.nth + 1, r.bytes + coalesce(octet_length(j.payload), 0)
  from read r
  left join lateral (
    select j.payload::text as payload
    from queue.job j
    where j.id = ($1::bigint[])[r.nth + 1] and j.id >= ($1::bigint[])[1] and j.id <= ($1::bigint[])[cardinality($1::bigint[])] offset 0
  ) j on true
  where r.nth < cardinality($1) and (r.nth = 0 or r.bytes + coalesce(octet_length(j.payload), 0) <= $2)
), fitting as materialized (
  select max(r.nth) as many from read r
)
select u.id, j.max_attempts, j.payload, j.key, j.meta, j.system, u.nth > f.many as is_unread
from fitting f
cross join unnest($1::bigint[]) with ordinality u (id, nth)
left join lateral (
  select j.max_attempts, case when u.nth <= f.many then j.payload::text end as payload, j.key, j.meta::text as meta,
    j.system::text as system
  from queue.job j
  where j.id = u.id and j.id >= ($1::bigint[])[1] and j.id <= ($1::bigint[])[cardinality($1::bigint[])] offset 0
) j on true
