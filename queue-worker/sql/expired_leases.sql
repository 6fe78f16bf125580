-- lease (locked): first half of recovery. Locks leases of workers whose heartbeat has expired. Returns the token and worker of each
-- locked lease.
-- $1 maximum number of leases
-- Safe: leases that another transaction has locked to settle or recover them are skipped. The locks are held until the transaction ends.
select l.token, l.worker
from queue.lease l
where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now())
order by l.token
limit $1
for update of l skip locked
