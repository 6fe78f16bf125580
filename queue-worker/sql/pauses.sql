-- Returns one row for each pause, and one row for each scope of each limit. Each row contains the number of the pause or limit, and the
-- highest number that this worker has acknowledged. Without pauses and limits, returns one row with only the acknowledged number.
-- $1 worker
-- Safe: read-only. Pauses and limits become visible in the order of their numbers, so a reader that has seen a number has seen all lower
-- numbers.
select coalesce((select w.paused_seen from queue.worker w where w.id = $1), 0) as seen,
  r.number, r.queue, r.job_type, r.limit_id, r.revision, r.most, r.timed, r.keyed
from (select) one
left join (
  select p.id as number, p.queue, p.job_type, null::bigint as limit_id, null::bigint as revision, null::integer as most, null::boolean as timed,
    null::boolean as keyed
  from queue.paused p
  union all
  select b.number, c.queue, c.job_type, b.limit_id, b.revision, case when not b.keyed then least(b.concurrency, b.starts, b.burst) end,
    b.starts is not null, b.keyed
  from queue.bound_in_force b
  cross join lateral (
    select substr(b.name, 7) as queue, '*' as job_type where starts_with(b.name, 'queue:')
    union all
    select '*', substr(b.name, 6) where starts_with(b.name, 'type:')
    union all
    select '*', t.job_type from queue.bound_type t where t.name = b.name
  ) c
) r on true
