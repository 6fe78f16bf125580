-- Returns attempt outcomes per step. Histograms are returned as stored, as one number each. See queue.history.
-- $1 length of the period up to now, in seconds  $2 step in seconds, or null for a single step  $3 queue or null  $4 job type or null
-- $5 whether each pair of queue and job type has rows of its own
-- Safe: read-only.
select h.at, h.seconds, h.queue, h.job_type, h.completed, h.retried, h.dead, h.cancelled, h.snoozed, h.released, h.expired, h.lease_lost, h.timed_out,
  h.panicked, h.crashed, h.run::text as run, h.start::text as start, h.left_out
from queue.read_history($1 * interval '1 second', $2 * interval '1 second', $3, $4, $5) h
