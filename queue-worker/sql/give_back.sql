-- lease -> ready | done (cancelled): releases all jobs of the leases $1 without counting the attempt, after the response to a claim was
-- lost.
-- $1 tokens
-- Safe: only the worker that chose a token knows the token, and the worker releases only leases under which no job has started. The
-- position of a released job is its id, which is unique and keeps jobs in order of age. A scan below the floor finds the job within about
-- a second.
with held as materialized (
  delete from queue.lease
  where token = any ($1)
  returning ids, attempts, crashes, cancelling
), cancelled as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
  select u.id, now(), 0, greatest(u.attempts, 1) - 1, true
  from held h
  cross join lateral unnest(h.ids, h.attempts) u (id, attempts)
  where u.id = any (h.cancelling)
  on conflict do nothing
  returning id
), freed as (
  delete from queue.active_key
  where ctid = any (array(
    select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = c.id) and k.id = c.id)
    from cancelled c
  ))
  returning key, seq
), hinted as (
  insert into queue.key_hint (key, after)
  select key, seq
  from freed
)
insert into queue.ready (lane, seq, id, attempts, crashes)
select queue.lane_id(l.queue, l.job_type, l.priority, u.crashes > 0), u.id, u.id, u.attempts - 1, u.crashes
from held h
cross join lateral unnest(h.ids, h.attempts, h.crashes) u (id, attempts, crashes)
cross join lateral (select j.lane from queue.job j where j.id = u.id offset 0) j
cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
where u.id = any (h.cancelling) is not true
on conflict do nothing
