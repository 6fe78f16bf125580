-- Revokes the default privileges on the schema of a distributed store's local functions, as roles/closed.sql does for the store. Access to the
-- store includes none of these functions.
revoke all on all routines in schema "queue_schema_here" from public;
