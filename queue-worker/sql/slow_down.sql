-- gate: prevents jobs under the limits $1 from starting for $2 ms.
-- $1 ids of the limits (rows of gate)  $2 milliseconds
-- Safe: the limits are locked in the same order as in claims. If two slow-downs are concurrent, the later end time applies.
update queue.gate g
set not_before = greatest(g.not_before, pg_catalog.clock_timestamp() + $2 * interval '1 millisecond')
from (select l.gate from queue.gate l where l.gate = any ($1) order by l.gate for update) l
where g.gate = l.gate
