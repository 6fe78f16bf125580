-- Returns the state of a server: whether it is a standby, and whether it accepts no writes. A server accepts no writes if it is a standby or is set
-- to read-only.
select pg_catalog.pg_is_in_recovery() as standby, pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool as read_only
