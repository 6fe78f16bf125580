-- scheduled, parked, blocked, step, expiry, job, unique_key: makes all due times and expiry times $1 ms earlier. Used in tests.
-- $1 duration in ms
-- Safe: positions and ids stay the same, and no job becomes ready. Skips rows locked by other transactions, but waits for locks on rows of
-- `step`.
with waiting as (
  update queue.scheduled
  set run_at = greatest(run_at - $1 * interval '1 millisecond', timestamptz '1970-01-01+00')
  where ctid = any (array(select s.ctid from queue.scheduled s for update skip locked))
), parked as (
  update queue.parked
  set run_at = greatest(run_at - $1 * interval '1 millisecond', timestamptz '1970-01-01+00')
  where ctid = any (array(select p.ctid from queue.parked p where p.run_at is not null for update skip locked))
), asleep as (
  update queue.step
  set until = greatest(until - $1 * interval '1 millisecond', timestamptz '1970-01-01+00')
  where until is not null
), expiring as (
  update queue.expiry
  set at = greatest(at - $1 * interval '1 millisecond', timestamptz '1970-01-01+00')
  where ctid = any (array(select e.ctid from queue.expiry e for update skip locked))
), late as (
  update queue.job
  set system = queue.with_expiry(system, greatest((system ->> 'expires_at')::timestamptz - $1 * interval '1 millisecond', '1970-01-01+00'))
  where id = any (array(
    select j.id from queue.job j where j.id = any (array(select e.id from queue.expiry e)) and j.system ? 'expires_at' for update skip locked
  ))
), behind as (
  update queue.blocked
  set run_at = greatest(run_at - $1 * interval '1 millisecond', timestamptz '1970-01-01+00')
  where ctid = any (array(select b.ctid from queue.blocked b where b.run_at is not null for update skip locked))
)
update queue.unique_key
set until = greatest(until - $1::float8 * interval '1 millisecond', timestamptz '1970-01-01+00')
where ctid = any (array(select u.ctid from queue.unique_key u where u.held = 'until' for update skip locked))
