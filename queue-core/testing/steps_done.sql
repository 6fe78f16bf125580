-- Returns the steps that earlier attempts of the job $1 have journaled, oldest first. `left_ms` is the remaining time of a sleep or timed
-- wait in ms, or null for other steps. Used in tests.
-- $1 id
-- Safe: read-only. The test's transaction has locked the job, so no other session journals steps. The attempts of a durable job are
-- counted from the last attempt that journaled a step. If attempt 1 of a job with an expiry time is released after it has journaled a
-- step, the attempt is counted, because the job has started. The steps of attempt 1 are then returned as steps of attempt 2, so that the
-- release does not use up a retry. If attempt 1 failed or crashed, a failure row exists, and the steps keep their attempt number.
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
