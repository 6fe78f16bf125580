-- Lists jobs with payload and output, newest first. Each job is listed once, with its state. See queue.list.
-- $1 state or null  $2 queue or null  $3 job types or null  $4 only ids below this id  $5 maximum number of jobs
-- $6 text in the error of a dead letter, or null  $7 maximum age in seconds, or null  $8 minimum age in seconds, or null
-- $9 required metadata, or null  $10 maximum number of history rows to read
-- Safe: read-only.
select l.horizon, l.id, l.queue, l.job_type, l.priority, l.state, l.attempts, l.max_attempts, l.crashes, l.run_at, l.finished_at, l.ran_ms,
  l.worker, l.cancelling, l.error, l.output, l.payload, l.meta, l.system, l.version
from queue.list(
  state => $1, queue => $2, job_types => $3, before => $4, most => $5, error => $6,
  since => $7::pg_catalog.float8 * interval '1 second', older_than => $8::pg_catalog.float8 * interval '1 second',
  payload => true, meta => $9, looked => $10
) l
