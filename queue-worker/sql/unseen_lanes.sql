-- lane, looked at: the transactions in which rows began to leave that nobody sees any more as they were before.
-- Safe: it only reads. Whoever has an older snapshot shows it in backend_xmin, which every role may read, from before that transaction was over.
-- What they have written by then has lower numbers than whoever asks next (pass_lanes), if that one has no number yet.
select distinct l.leaving::text as leaving
from queue.lane l
where l.leaving is not null and l.passed is null
  and pg_current_xact_id_if_assigned() is null
  and pg_snapshot_xmax(pg_current_snapshot())::text::bigint - l.leaving::text::bigint > coalesce((
    select max(age(a.backend_xmin))
    from pg_stat_activity a
    where a.datid = (select d.oid from pg_database d where d.datname = current_database()) and a.pid <> pg_backend_pid()
  ), 0)
