-- Returns the transactions that marked lane rows for deletion, provided that every snapshot now sees the marks. Returns no row if the
-- current transaction already has an id.
-- Safe: read-only. The backend_xmin of a session shows whether its snapshot is older than the end of the marking transaction, and every
-- role may read backend_xmin. pass_lanes.sql stores its own transaction id as an upper bound for the transactions that may have used a
-- marked row. The bound holds because pass_lanes.sql gets its id only after this query.
select distinct l.leaving::text as leaving
from queue.lane l
where l.leaving is not null and l.passed is null
  and pg_current_xact_id_if_assigned() is null
  and pg_snapshot_xmax(pg_current_snapshot())::text::bigint - l.leaving::text::bigint > coalesce((
    select max(age(a.backend_xmin))
    from pg_stat_activity a
    where a.datid = (select d.oid from pg_database d where d.datname = current_database()) and a.pid <> pg_backend_pid()
  ), 0)
