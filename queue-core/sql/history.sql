-- What came of attempts; see queue.history. Histograms come as the tables have them.
-- $1 how many seconds back  $2 how many seconds a step, null for one  $3 of this queue  $4 of this job type  $5 each queue and type apart
select h.at, h.seconds, h.queue, h.job_type, h.completed, h.retried, h.dead, h.cancelled, h.snoozed, h.released, h.expired, h.lease_lost, h.timed_out,
  h.panicked, h.crashed, h.run::text as run, h.start::text as start, h.left_out
from queue.read_history($1 * interval '1 second', $2 * interval '1 second', $3, $4, $5) h
