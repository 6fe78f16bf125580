-- Returns whether the server is a standby, and whether it rejects writes. A server rejects writes if it is a standby or is set to
-- read-only.
select pg_catalog.pg_is_in_recovery() as standby, pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool as read_only
