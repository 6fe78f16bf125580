-- ready -> lease, as claim_limited.sql, of lanes that the same limits cover, of which some are by key; see queue.claim_keyed. With the jobs come the
-- lines after which the lanes go on, and at the end what stood in the way.
-- $1 token  $2 worker  $3 gates of the limits  $4 lanes  $5 floors, or the lines after which to go on  $6 which lanes stand in lines
-- $7 how many of each lane  $8 how many in all  $9 tokens of leases of which this worker has ended jobs since it claimed under any of these limits
-- $10 how many ms it may need until the jobs begin, if there is a rate  $11 from where on to read the permits of each limit
-- Safe: it waits for the gates of the limits, in one order, for as long as lock_timeout allows; then it sees all that was claimed under them before.
-- Runs with synchronous_commit=off: nothing begins before confirm.sql.
select c.lane, c.turn, c.line, c.seq, c.id, c.attempts, c.crashes, c.closed, c.wait_ms, c.at_ms, c.within_ms, c.permit_floors
from queue.claim_keyed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) c
