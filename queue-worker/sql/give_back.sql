-- lease -> ready | done, cancelled: all of the leases $1, uncharged, for a claim whose answer never reached its worker.
-- $1 tokens
-- Safe: only the worker that chose a token knows it, and it gives back only those under which it has begun nothing. A job's place
-- is its id, which nobody else takes: it stands where its age puts it, and below a floor it is found within about a second.
with held as materialized (
  delete from queue.lease
  where token = any ($1)  -- guard: only the leases named [token = any ($1) => $1::uuid[] is not null]
  returning ids, attempts, crashes, cancelling
), cancelled as (
  insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
  select u.id, now(), 0, greatest(u.attempts, 1) - 1, true
  from held h
  cross join lateral unnest(h.ids, h.attempts) u (id, attempts)
  where u.id = any (h.cancelling)
  on conflict do nothing  -- guard: a job that is over already stops no claim
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
  from freed  -- guard: a freed key is left a hint [freed => freed where false]
)
insert into queue.ready (lane, seq, id, attempts, crashes)
-- guard: charges no attempt [ - 1]; suspects stay so [u.crashes > 0 => false]; keeps the crashes [1, u.crashes => 1, 0]
select queue.lane_id(l.queue, l.job_type, l.priority, u.crashes > 0), u.id, u.id, u.attempts - 1, u.crashes
from held h
cross join lateral unnest(h.ids, h.attempts, h.crashes) u (id, attempts, crashes)
cross join lateral (select j.lane from queue.job j where j.id = u.id offset 0) j  -- guard: each its own lane [= u.id offset 0 => > 0 limit 1]
cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l  -- guard: once each [ limit 1]
where u.id = any (h.cancelling) is not true  -- guard: what was cancelled does not return
on conflict do nothing  -- guard: a job that stands there already stops no claim
