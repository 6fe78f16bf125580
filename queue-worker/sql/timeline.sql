-- How often a primary's history has branched by promotions; null of a standby. Of two servers that both take writes, the one with the higher number
-- was promoted last. In the name of the file that is written now, because the control file has it only after the next checkpoint.
select case when not pg_catalog.pg_is_in_recovery() then (
  'x' operator(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
)::pg_catalog.bit(32)::pg_catalog.int8 end as timeline
