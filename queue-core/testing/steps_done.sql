-- step, read: the steps finished by earlier attempts of the job $1, in that order, with the remaining ms of sleeps.
-- $1 id
-- Safe: reads only. The reader has the job's lease, and earlier holders can write no more. The first attempt of a job with a deadline is charged if
-- it is given back with journaled steps, so that the job counts as started; it has used up no attempt. Its steps then count as those of the second
-- attempt, the first that counts. An attempt that failed, or whose process crashed, has left a failure.
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
