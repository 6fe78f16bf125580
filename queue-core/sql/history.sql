-- Returns the number of attempts by outcome, for each time step of a period. A histogram is returned in its stored form, which is a
-- single number. See queue.history.
-- $1 length of the period that ends now, in seconds  $2 length of a time step in seconds, or null for a single step
-- $3 queue or null  $4 job type or null  $5 whether to return separate rows for each pair of queue and job type
-- Safe: read-only.
select h.at, h.seconds, h.queue, h.job_type, h.completed, h.retried, h.dead, h.cancelled, h.snoozed, h.released, h.expired, h.lease_lost, h.timed_out,
  h.panicked, h.crashed, h.run::text as run, h.start::text as start, h.left_out
from queue.read_history($1 * interval '1 second', $2 * interval '1 second', $3, $4, $5) h
