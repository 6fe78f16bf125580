-- Jobs with payload and output, the newest first, each once with its state; see queue.list.
-- $1 state, or null for any  $2 queue, or null  $3 job types, or null  $4 below this id  $5 how many at most  $6 text in the error of a dead letter
-- $7 not more than so many seconds ago  $8 at least so many seconds ago  $9 in the metadata, or null  $10 how many rows of the history are looked at
-- Safe: it only reads.
select l.horizon, l.id, l.queue, l.job_type, l.priority, l.state, l.attempts, l.max_attempts, l.crashes, l.run_at, l.finished_at, l.ran_ms,
  l.worker, l.cancelling, l.error, l.output, l.payload, l.meta, l.system, l.version
from queue.list(
  state => $1, queue => $2, job_types => $3, before => $4, most => $5, error => $6,
  since => $7::pg_catalog.float8 * interval '1 second', older_than => $8::pg_catalog.float8 * interval '1 second',
  payload => true, meta => $9, looked => $10
) l
