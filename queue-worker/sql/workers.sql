-- Every worker with a heartbeat row, and how many jobs it holds. One that is not alive is silent: its jobs are about to be recovered.
select w.id, w.name, w.host, w.pid, w.version, w.queues, w.started_at, w.expires_at, w.expires_at > pg_catalog.now() as alive,
  (select coalesce(pg_catalog.sum(pg_catalog.cardinality(h.ids)), 0) from queue.lease h where h.worker = w.id)::bigint as jobs
from queue.worker w
order by w.started_at, w.id
