-- Returns the steps that earlier attempts of the job $1 have finished, in the order in which they finished, with the remaining ms of sleeps.
-- $1 id
-- Safe: read-only. The caller holds the job's lease, so earlier owners can no longer write. If a job with a deadline is given back on its first
-- attempt with journaled steps, that attempt is charged. The charge marks the job as started, although the job has used up no attempt. Its steps
-- then count as those of the second attempt, the first one that counts. An attempt that failed or crashed has a failure row, which distinguishes
-- the two cases.
with uncounted as materialized (
  select coalesce(max(f.at), '-infinity') as failed_at
  from queue.job j
  left join queue.failure f on f.id = j.id and f.attempt = 1
  where j.id = $1 and j.system ? 'expires_at'
  group by j.id
)
select s.name, coalesce(u.attempt, s.attempt) as attempt, s.output::text as output,
  (extract(epoch from s.until - clock_timestamp()) * 1000)::float8 as left_ms
from queue.step s
left join lateral (select 2::smallint as attempt from uncounted u where s.attempt = 1 and u.failed_at < s.at) u on true
where s.id = $1
order by s.at, s.name
