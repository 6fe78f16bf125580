-- nothing -> worker: registers a worker process. The registration counts as a heartbeat, which is valid for $2 ms.
-- $1 worker, random  $2 ttl in ms  $3 name  $4 host  $5 pid  $6 version  $7 queues  $8 job types
-- $9 slots  $10 memory of the process in bytes
insert into queue.worker (id, expires_at, name, host, pid, version, queues, types, ttl, busy, slots, memory)
values (
  $1, now() + $2 * interval '1 millisecond',
  $3, $4, $5, $6, $7, $8, $2 * interval '1 ms', 0, $9, $10
)
