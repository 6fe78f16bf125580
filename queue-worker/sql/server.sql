-- What a server says of itself: whether it follows another one, and whether it takes no writes, as a standby or because it was told so.
select pg_catalog.pg_is_in_recovery() as standby, pg_catalog.current_setting('transaction_read_only')::pg_catalog.bool as read_only
