-- lease, locked: the first half of recovery. Finds leases of workers whose heartbeat has expired.
-- $1 how many at most
-- Safe: locks them for the transaction and passes over those that a settle or another recovery holds.
select l.token, l.worker
from queue.lease l
where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now())
order by l.token
limit $1
for update of l skip locked
