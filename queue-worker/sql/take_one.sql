-- ready, to be locked: the first job that nobody holds of the lanes $1, in the order of the lanes, each lane from its floor $2 on.
-- $1 lanes  $2 floors  $3 ids to pass over
-- Safe: runs in the transaction that will end the job; its lock on the entry is all that makes the job ours. Claims and other workers pass
-- over what is locked. When the transaction ends otherwise, however that comes about, the entry is as it was. The payload is probed
-- (offset 0 sees to it): a plan made while job was empty must not read all of it later.
select p.lane, p.seq, p.id, p.attempts, p.crashes, j.max_attempts, j.payload::text as payload, pg_backend_pid() as pid, j.key, j.key_skips,
  j.meta::text as meta, now() as claimed_at
from (
  select e.lane, e.seq, e.id, e.attempts, e.crashes
  from unnest($1::bigint[], $2::bigint[]) l (lane, floor)
  cross join lateral (
    select r.lane, r.seq, r.id, r.attempts, r.crashes
    from queue.ready r
    where r.lane = l.lane and r.seq >= l.floor
      and r.id <> all ($3::bigint[])
    order by r.seq
    limit 1
    for update skip locked
  ) e
  limit 1
) p
left join lateral (select j.max_attempts, j.payload, j.key, j.key_skips, j.meta from queue.job j where j.id = p.id offset 0) j on true
