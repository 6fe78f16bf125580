-- ready, in lines -> lease: up to $6 jobs of the plain lanes $3, in the order of the lanes; the next ones whose turn it is. See queue.claim_lines.
-- $1 token, random, chosen by the worker  $2 worker  $3 lanes  $4 the line after which each goes on  $5 how many of each lane  $6 how many in all
-- $7 the most bytes of a payload: one that has more is left out, and read apart (left_out.sql)
-- Safe: as claim.sql, with synchronous_commit=off as that. Columns are those of claim.sql, and then a job's line and its place in that.
select t.lane, t.place, t.id, t.attempts, t.crashes, t.max_attempts, t.payload, t.key, t.meta, t.system,
  now() as claimed_at, t.line, t.seq
from queue.claim_lines($1, $2, $3, $4, $5, $6, $7) t
