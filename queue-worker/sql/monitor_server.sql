-- Returns three values for monitoring: the number of days after today that have partitions, the age in transactions of the oldest
-- snapshot that prevents vacuuming, and the age in seconds of the oldest transaction with a snapshot. The last age is null if there is no
-- such transaction or if this role may not see it.
-- $1 schema
-- Safe: read-only. Reads only system catalogs and statistics views.
select
  (select count(*)::integer
   from pg_inherits i
   join pg_class day on day.oid = i.inhrelid
   join pg_class parent on parent.oid = i.inhparent
   join pg_namespace n on n.oid = parent.relnamespace
   where n.nspname = $1 and parent.relname = 'job' and day.relname ~ '^job_[0-9]{8}$'
     and day.relname > 'job_' || to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD')) as days_ahead,
  greatest(
    (select max(age(a.backend_xmin)) from pg_stat_activity a where a.datname = current_database() or a.datname is null),
    (select max(age(s.xmin)) from pg_replication_slots s),
    (select max(age(p.transaction)) from pg_prepared_xacts p where p.database = current_database()),
    0)::bigint as snapshot_age,
  (select extract(epoch from clock_timestamp() - min(a.xact_start))::double precision
   from pg_stat_activity a
   where a.datname = current_database() and a.backend_xmin is not null) as transaction_age
