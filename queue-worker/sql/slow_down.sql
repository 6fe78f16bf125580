-- gate: nothing begins under these limits for $2 ms.
-- $1 gates of the limits  $2 how many ms
-- Safe: gates are locked in one order, as claims lock them; of two that say so the later time holds.
update queue.gate g
set not_before = greatest(g.not_before, pg_catalog.clock_timestamp() + $2 * interval '1 millisecond')
from (select l.gate from queue.gate l where l.gate = any ($1) order by l.gate for update) l
where g.gate = l.gate
