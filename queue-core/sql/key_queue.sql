-- Returns the unfinished jobs of an ordering key, in the key's order. The first job is the key's head, which may be a dead letter that
-- blocks the key. See queue.key_queue.
-- $1 queue  $2 key  $3 maximum number of jobs
-- Safe: read-only. Reads one index entry of the key per job, and finds each job by its id.
select f.id, f.queue, f.job_type, f.priority, f.state, f.attempts, f.max_attempts, f.crashes, f.run_at, f.finished_at, f.ran_ms, f.worker,
  f.cancelling, f.error, null::pg_catalog.jsonb as output, null::pg_catalog.jsonb as payload, f.meta, f.system, f.version
from queue.key_queue($1, $2, $3) l
cross join lateral queue.reader_find(l.id) f
order by l.seq
