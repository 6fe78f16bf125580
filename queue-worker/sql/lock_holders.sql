-- Returns up to 20 locks that block writes to the store's tables, each with the session that holds or awaits the lock. The oldest
-- transactions come first.
-- Safe: read-only, and never waits for a lock. Runs only after a statement has exceeded its lock timeout.
select c.relname::text as relation, a.pid, a.usename::text as role, a.application_name as application
from pg_catalog.pg_locks l
join pg_catalog.pg_class c on c.oid = l.relation
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation'
  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
  and c.relnamespace = (select s.relnamespace from pg_catalog.pg_class s where s.oid = 'queue.lease'::pg_catalog.regclass)
  and coalesce(l.pid, 0) <> pg_catalog.pg_backend_pid()
  -- Excludes autovacuum, which has no role and yields to waiting sessions.
  and (a.pid is null or a.usesysid is not null)
order by a.xact_start
limit 20
