-- Returns the lowest running transaction id (xmin) and the first unassigned one (xmax). A producer that did not see this worker's row in idle has
-- an id below the xmax that was read after the row was committed. Once xmin has reached that xmax, all such producers have ended and their jobs are
-- visible.
select pg_snapshot_xmin(s)::text::bigint as xmin, pg_snapshot_xmax(s)::text::bigint as xmax
from pg_current_snapshot() s
