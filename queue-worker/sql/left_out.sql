-- job, looked at: what a claim left out of the jobs $1, in this order: the first, and as many after it as have at most $2 bytes of payloads together
-- with it. Of a job that is not there no more than its id.
-- $1 ids  $2 how many bytes
-- Safe: it only reads, one payload beyond those that it returns. Whoever asks holds the jobs.
with recursive read (nth, id, bytes, max_attempts, payload, key, key_skips, meta, system) as (
  select 0, null::bigint, 0::bigint, null::smallint, null::text, null::bigint, null::boolean, null::text, null::text
  union all
  select r.nth + 1, ($1::bigint[])[r.nth + 1], r.bytes + coalesce(octet_length(j.payload), 0), j.*
  from read r
  left join lateral (
    select j.max_attempts, j.payload::text as payload, j.key, j.key_skips, j.meta::text as meta, j.system::text as system
    from queue.job j
    where j.id = ($1::bigint[])[r.nth + 1] offset 0
  ) j on true
  where r.nth < cardinality($1) and (r.nth = 0 or r.bytes + coalesce(octet_length(j.payload), 0) <= $2)
)
select r.id, r.max_attempts, r.payload, r.key, r.key_skips, r.meta, r.system
from read r
where r.nth > 0
