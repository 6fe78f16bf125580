-- Returns whether the server is a standby, and whether the server rejects writes. A standby rejects writes, and so does a read-only
-- server.
select pg_catalog.pg_is_in_recovery() as standby, pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool as read_only
