-- The first transaction id not given out yet, and the lowest one still running. A producer that did not see our idle row has an id below
-- the xmax noted after its commit; once xmin has reached that, all such producers have ended and their jobs can be seen.
select pg_snapshot_xmin(s)::text::bigint as xmin, pg_snapshot_xmax(s)::text::bigint as xmax
from pg_current_snapshot() s
