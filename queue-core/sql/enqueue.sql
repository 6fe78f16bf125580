-- nothing -> ready | scheduled: enqueues one job, in the caller's transaction.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 delay in ms, or null
-- Safe: queue.insert_job inserts in one transaction, and a rollback removes everything. The delay counts from the database's clock, not from the
-- start of the transaction, which may be long ago. The caller's search_path may contain a type or an operator of the same name, so types and
-- operators are qualified too.
select queue.insert_job($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')))
