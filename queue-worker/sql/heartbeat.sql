-- worker: renews a worker's heartbeat for $2 ms. Returns no row if the heartbeat has already expired.
-- $1 worker  $2 ttl in ms  $3 number of occupied slots  $4 total number of slots  $5 memory of the worker's process in bytes
-- Safe: an expired worker stays expired, because other workers may be recovering its leases. The worker has to register again with a new
-- id.
update queue.worker
set expires_at = now() + $2 * interval '1 millisecond', busy = $3, slots = $4, memory = $5
where id = $1 and expires_at > now()
returning id
