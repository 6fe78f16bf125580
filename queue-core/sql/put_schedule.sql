-- schedule: creates the schedule $1, or changes it.
-- $1 name  $2 job type  $3 payload as JSON text  $4 options as JSON text
-- Safe: one row, locked by every change; an unchanged schedule is not written.
select queue.schedule($1, $2, $3::pg_catalog.text::pg_catalog.jsonb, $4::pg_catalog.text::pg_catalog.jsonb)
