-- Returns the ready, scheduled and blocked jobs of the types $1, in the order in which they were enqueued. Used in tests.
-- $1 job types
select j.id, j.queue, j.priority, j.state, j.run_at, j.max_attempts, j.attempts, j.payload::text as payload, j.meta::text as meta,
  j.system::text as system, j.job_type, j.version
from queue.jobs j
where j.job_type = any ($1) and j.state in ('ready', 'scheduled', 'blocked')
order by j.id
