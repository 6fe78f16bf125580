-- Returns the server's timeline number, or null on a standby. Each promotion increases the number. If two servers accept writes, the
-- server with the higher number was promoted last. The number is read from the name of the current WAL file, because the control file
-- contains the number only after the next checkpoint.
select case when not pg_catalog.pg_is_in_recovery() then (
  'x' operator(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
)::pg_catalog.bit(32)::pg_catalog.int8 end as timeline
