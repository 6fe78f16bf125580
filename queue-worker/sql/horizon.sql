-- Returns the lowest running transaction id (xmin) and the first unassigned transaction id (xmax). If a producer did not see this
-- worker's row in idle, the producer's transaction id is below the xmax that is read after the row's commit. Once xmin has reached this
-- xmax, all such transactions have ended and their jobs are visible.
select pg_snapshot_xmin(s)::text::bigint as xmin, pg_snapshot_xmax(s)::text::bigint as xmax
from pg_current_snapshot() s
