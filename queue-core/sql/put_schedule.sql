-- schedule: creates or changes the schedule $1.
-- $1 name  $2 job type  $3 payload as JSON text  $4 options as JSON text
-- Safe: writes one row, under the row lock that serializes all changes to the schedule. An identical definition changes nothing.
select queue.schedule($1, $2, $3::pg_catalog.text::pg_catalog.jsonb, $4::pg_catalog.text::pg_catalog.jsonb)
