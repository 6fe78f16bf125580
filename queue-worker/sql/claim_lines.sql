-- ready, fairly queued -> lease: claims up to $6 jobs of the plain lanes $3, in the order of the array, from the fair queues in turn. See
-- queue.claim_lines.
-- $1 token, random, chosen by the worker  $2 worker  $3 lanes  $4 fair queue after which each lane continues  $5 maximum number of jobs per lane
-- $6 maximum number of jobs  $7 maximum payload size in bytes; larger payloads are read separately (left_out.sql)
-- Safe: as claim.sql, also with synchronous_commit=off. The columns are those of claim.sql, followed by the job's fair queue and its place there.
select t.lane, t.place, t.id, t.attempts, t.crashes, t.max_attempts, t.payload, t.key, t.meta, t.system,
  now() as claimed_at, t.line, t.seq
from queue.claim_lines($1, $2, $3, $4, $5, $6, $7) t
