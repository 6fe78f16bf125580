-- Every worker with a heartbeat row, and how many jobs it holds.
-- Safe: it only reads.
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.started_at, w.expires_at, w.alive, w.jobs, w.busy, w.slots, w.memory
from queue.workers() w
