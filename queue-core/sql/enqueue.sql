-- nothing -> ready | scheduled: one job, in the caller's transaction.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 run after this many ms, or null
-- Safe: queue.insert_job is one transaction's inserts; rolled back, nothing is left. The wait counts from the database's clock, not from the
-- transaction's start, which may lie far back. The caller's search_path may hold a type or an operator of the same name, so these are
-- qualified too.
select queue.insert_job($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')))
