-- scheduled -> ready: restarts the job $1 after an attempt. Used in tests.
-- $1 job  $2 type and version as stored  $3 new payload as JSON text
-- Safe: runs in the test's transaction, which has locked the job's row in ready and then snoozed the job. Like queue.restart, but without
-- a lease.
with deleted as (
  delete from queue.scheduled
  where id = $1
  returning id
), restarting as materialized (
  select j.id, case when l.job_type = $2 then j.lane else queue.ensure_lane(l.queue, $2, l.priority, false) end as lane
  from deleted g
  join queue.job j on j.id = g.id
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
), replaced as (
  update queue.job j
  set payload = $3::text::jsonb, lane = a.lane,
    system = case when j.system operator(pg_catalog.-) 'expires_at'::text operator(pg_catalog.<>) '{}'::jsonb
      then j.system operator(pg_catalog.-) 'expires_at'::text end
  from restarting a
  where j.id = a.id
), undone as (
  delete from queue.step
  where id in (select id from restarting)
), unborn as (
  delete from queue.child
  where parent in (select id from restarting)
), forgotten as (
  delete from queue.progress
  where id in (select id from restarting)
)
insert into queue.ready (lane, seq, id)
select lane, queue.next_id(), id
from restarting
