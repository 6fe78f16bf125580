-- Closes the schema beside a distributed store, as roles/closed.sql closes the store: whoever is let into it is let into no function by that.
revoke all on all routines in schema "queue_schema_here" from public;
