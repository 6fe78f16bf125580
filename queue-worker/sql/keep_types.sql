-- retention: sets the history retention of the job types $1 to $2. Null selects the store's retention. Writes only changes.
-- $1 job types  $2 retentions in seconds
-- Safe: if workers of two releases disagree, the settings of the worker that started last apply. Inserted and updated types
-- are locked in name order.
with input as materialized (
  select s.job_type, case when s.seconds is not null then least(s.seconds, 31557600000) end * interval '1 second' as history
  from unnest($1::text[], $2::float8[]) s (job_type, seconds)
), forgotten as (
  delete from queue.retention k
  using input s
  where k.job_type = s.job_type and s.history is null
)
insert into queue.retention as k (job_type, history)
select s.job_type, s.history
from input s
where s.history is not null
order by s.job_type
on conflict (job_type) do update
set history = excluded.history
where k.history <> excluded.history
