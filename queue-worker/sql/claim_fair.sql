-- ready (in fair queues) -> lease: claims up to $6 jobs from the fair queues of the lanes $3, in array order. Takes the fair queues of a
-- lane in turn. See queue.claim_fair. Returns one row per claimed job with the columns of claim.sql, where `place` is the job's position
-- in this claim. Also returns the job's fair queue, and its position in that queue.
-- $1 token, random, chosen by the worker  $2 worker  $3 lanes  $4 fair queue after which each lane continues
-- $5 maximum number of jobs per lane  $6 maximum number of jobs
-- $7 maximum payload size in bytes; larger payloads are read separately (unread_payloads.sql)
-- Safe: see claim.sql. Runs with synchronous_commit=off, like claim.sql.
select t.lane, t.place, t.id, t.attempts, t.crashes, t.max_attempts, t.payload, t.key, t.meta, t.system,
  now() as claimed_at, t.fair_id, t.seq
from queue.claim_fair($1, $2, $3, $4, $5, $6, $7) t
