-- Returns the transactions that marked lane rows, if no snapshot sees these rows unmarked any more.
-- Safe: read-only. A session with an older snapshot shows that snapshot in backend_xmin, which every role may read, since before the marking
-- transaction ended. Transactions of such sessions have lower ids than the next transaction (pass_lanes.sql), which must not have an id yet.
select distinct l.leaving::text as leaving
from queue.lane l
where l.leaving is not null and l.passed is null
  and pg_current_xact_id_if_assigned() is null
  and pg_snapshot_xmax(pg_current_snapshot())::text::bigint - l.leaving::text::bigint > coalesce((
    select max(age(a.backend_xmin))
    from pg_stat_activity a
    where a.datid = (select d.oid from pg_database d where d.datname = current_database()) and a.pid <> pg_backend_pid()
  ), 0)
