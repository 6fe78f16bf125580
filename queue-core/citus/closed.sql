-- Revokes the default privileges on the local functions of a distributed store, as roles/closed.sql does for the store. Roles get these
-- privileges only through let_in.sql.
revoke all on all routines in schema "queue_schema_here" from public;
