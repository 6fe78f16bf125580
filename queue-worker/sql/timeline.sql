-- Returns the number of the timeline, which each promotion increases, or null on a standby. If two servers accept writes, the one with the higher
-- number was promoted last. The number is read from the name of the current WAL file, because the control file has it only after the next
-- checkpoint.
select case when not pg_catalog.pg_is_in_recovery() then (
  'x' operator(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
)::pg_catalog.bit(32)::pg_catalog.int8 end as timeline
