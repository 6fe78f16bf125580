-- step, looked at: what earlier attempts of the job $1 have finished, in that order, and in how many ms those end that sleep.
-- $1 id
-- Safe: reads only. Whoever reads has the job's lease, and those who had it before can write no more. The first attempt of a job that may expire is
-- charged when it goes back with something journaled, so that the job has begun; it has used up none. Then what it has journaled is as if the second
-- had: that one is the first that counts. An attempt that has failed, or ended with its process, has left a failure.
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
