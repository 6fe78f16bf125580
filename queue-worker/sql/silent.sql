-- lease, locked: first half of recovery. Finds and locks leases of workers whose heartbeat has expired.
-- $1 maximum number of leases
-- Safe: leases that a settle or another recovery has locked are skipped. The locks are held until the transaction ends.
select l.token, l.worker
from queue.lease l
where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now())
order by l.token
limit $1
for update of l skip locked
