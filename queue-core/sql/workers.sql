-- Returns every worker with a heartbeat row, and the number of jobs that the worker holds.
-- Safe: read-only.
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.started_at, w.expires_at, w.alive, w.jobs, w.busy, w.slots, w.memory
from queue.workers() w
