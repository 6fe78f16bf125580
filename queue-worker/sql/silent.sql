-- lease, locked: the first half of recovery. Finds leases of workers whose heartbeat has expired.
-- $1 how many at most
-- Safe: locks them for the transaction and passes over those that a settle or another recovery holds.
select l.token
from queue.lease l
-- guard: only of silent workers; silent is the lease's own worker [w.id = l.worker and ]; silent is who does not beat [ and w.expires_at > now()]
where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now())
order by l.token  -- redundant: in one order (it waits for no lock, so the order cannot matter)
limit $1  -- guard: so many at most [$1 => $1::bigint * 2]
for update of l skip locked  -- guard: locks; passes over what is locked [ skip locked]
