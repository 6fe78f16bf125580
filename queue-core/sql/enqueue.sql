-- nothing -> ready | scheduled: enqueues one job, in the caller's transaction.
-- $1 job type  $2 payload as JSON text  $3 queue  $4 priority  $5 max_attempts  $6 run at, or null  $7 delay in ms, or null
-- Safe: queue.insert_job inserts in one transaction, and a rollback removes all rows. The delay starts at the current time of the
-- database clock, because the transaction may have started long ago. Types and operators are also schema-qualified, because the caller's
-- search_path may contain objects of the same name.
select queue.insert_job($1, $2::pg_catalog.jsonb, $3, $4, $5,
  coalesce($6, pg_catalog.clock_timestamp() operator(pg_catalog.+) ($7 operator(pg_catalog.*) interval '1 millisecond')))
