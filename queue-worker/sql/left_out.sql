-- job, looked at: what a claim left out of the jobs $1. The first has its payload, and as many after it as have at most $2 bytes together with it;
-- the others are said to be unread. Of a job that is not there no more than its id.
-- $1 ids, in their order: by the first and the last the executor knows which days to open  $2 how many bytes
-- Safe: it only reads, one payload beyond those that it returns. Whoever asks holds the jobs.
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
