-- ready, locked: locks and returns the first ready job of the types $1, by priority and then by position in the lane. Returns no row if
-- there is no such job. Used in tests.
-- $1 job types
-- Safe: the lock serves as the lease, because workers and other tests skip the row until the test's transaction has ended.
select l.queue, l.job_type, r.lane, r.seq, r.id, r.attempts, r.crashes, j.max_attempts, j.payload::text as payload, j.key,
  (select p.checkpoint::text from queue.progress p where p.id = r.id) as checkpoint, j.meta::text as meta,
  j.system::text as system, now() as claimed_at
from queue.ready r
join queue.job j on j.id = r.id
cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = r.lane limit 1) l
where l.job_type = any ($1)
order by l.priority desc, r.seq
limit 1
for update of r skip locked
