-- limiter: prevents jobs under the limits $1 from starting for $2 ms.
-- $1 ids of the limits (rows of limiter)  $2 milliseconds
-- Safe: the limits are locked in the same order as in claims. If two slow-downs are concurrent, the later end time applies.
update queue.limiter g
set not_before = greatest(g.not_before, pg_catalog.clock_timestamp() + $2 * interval '1 millisecond')
from (select l.limit_id from queue.limiter l where l.limit_id = any ($1) order by l.limit_id for update) l
where g.limit_id = l.limit_id
