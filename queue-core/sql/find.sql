-- Returns one job with payload and output, in any state, or no row if the job does not exist. See queue.find.
-- $1 id
-- Safe: read-only.
select f.id, f.queue, f.job_type, f.priority, f.state, f.attempts, f.max_attempts, f.crashes, f.run_at, f.finished_at, f.ran_ms, f.worker,
  f.cancelling, f.error, f.output, f.payload, f.meta, f.system, f.version
from queue.find($1, true) f
