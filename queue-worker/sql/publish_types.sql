-- type_options: sets the enqueue defaults of the job types $1. A type with the general defaults has no row. Rows that would not change
-- are not written.
-- $1 job types  $2 default queues  $3 priorities  $4 maximum numbers of attempts  $5 times until expiry in seconds, or null
-- Safe: if workers of two releases disagree, the settings of the worker that started last apply. Types are locked in name order.
with input as materialized (
  select s.job_type, s.queue, s.priority, s.max_attempts, s.expires * interval '1 second' as expires,
    (s.queue, s.priority, s.max_attempts) = ('default', 100, 20) and s.expires is null as ordinary
  from unnest($1::text[], $2::text[], $3::smallint[], $4::smallint[], $5::float8[]) s (job_type, queue, priority, max_attempts, expires)
), forgotten as (
  delete from queue.type_options p
  using input s
  where p.job_type = s.job_type and s.ordinary
)
insert into queue.type_options as p (job_type, queue, priority, max_attempts, expires)
select s.job_type, s.queue, s.priority, s.max_attempts, s.expires
from input s
where not s.ordinary
order by s.job_type
on conflict (job_type) do update
set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, expires = excluded.expires
where (coalesce(p.expires, '0'), p.queue, p.priority, p.max_attempts)
  <> (coalesce(excluded.expires, '0'), excluded.queue, excluded.priority, excluded.max_attempts)
