-- worker: alive for another $2 ms; no row when it was too late.
-- $1 worker  $2 ttl in ms  $3 how many slots run something  $4 of so many  $5 memory of its process, in bytes
-- Safe: an expired worker stays expired, for others may be taking its leases; it must register anew under another id.
update queue.worker
set expires_at = now() + $2 * interval '1 millisecond', busy = $3, slots = $4, memory = $5
where id = $1 and expires_at > now()
returning id
