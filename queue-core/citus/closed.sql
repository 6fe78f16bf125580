-- Revokes all privileges on the local functions of a distributed store from PUBLIC, which may execute new functions by default.
-- roles/closed.sql does the same for the objects of the store itself. Roles other than the owner get privileges on the local functions
-- only through let_in.sql.
revoke all on all routines in schema "queue_schema_here" from public;
