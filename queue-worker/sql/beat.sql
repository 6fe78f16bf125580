-- worker: alive for another $2 ms; no row when it was too late.
-- $1 worker  $2 ttl in ms
-- Safe: an expired worker stays expired, for others may be taking its leases; it must register anew under another id.
update queue.worker
set expires_at = now() + $2 * interval '1 millisecond'
where id = $1 and expires_at > now()  -- guard: its own row [id = $1 => $1::uuid is not null]; not once it has expired [ and expires_at > now()]
returning id
