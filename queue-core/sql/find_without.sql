-- Returns one job without payload and output, in any state, or no row if the job does not exist. See queue.reader_find.
-- $1 id
-- Safe: read-only.
select f.id, f.queue, f.job_type, f.priority, f.state, f.attempts, f.max_attempts, f.crashes, f.run_at, f.finished_at, f.ran_ms, f.worker,
  f.cancelling, f.error, null::pg_catalog.jsonb as output, null::pg_catalog.jsonb as payload, f.meta, f.system, f.version
from queue.reader_find($1) f
