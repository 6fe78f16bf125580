-- ready -> lease: claims jobs like claim_limited.sql, under limits of which at least one applies per key. See queue.claim_keyed. For each
-- fair lane, also returns a row without a job, which contains the fair queue after which the next claim continues. The last row contains
-- the reason why the claim took fewer jobs than available.
-- $1 token  $2 worker  $3 ids of the limits  $4 lanes  $5 floor of each lane, or the fair queue after which to continue
-- $6 whether each lane is fair  $7 maximum number of jobs per lane  $8 maximum number of jobs
-- $9 leases with jobs that have finished on this worker since its last claim under any of these limits
-- $10 expected milliseconds until the jobs start, under a rate limit  $11 position of the first permit to read for each limit
-- Safe: the limits are locked in a fixed order, with a wait of up to lock_timeout. After the wait, the statement sees all earlier claims
-- under these limits. Runs with synchronous_commit=off, because no job starts before confirm.sql has made the lease durable.
select c.lane, c.turn, c.fair_id, c.seq, c.id, c.attempts, c.crashes, c.closed, c.wait_ms, c.at_ms, c.within_ms, c.permit_floors
from queue.claim_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) c
