-- Sessions that have tables of the store locked against writers, or are about to: a row for each table and session, the oldest transaction first.
-- Safe: it only reads, and never waits. Asked only after a statement had to wait for a lock for too long.
select c.relname::text as relation, a.pid, a.usename::text as role, a.application_name as application
from pg_catalog.pg_locks l
join pg_catalog.pg_class c on c.oid = l.relation
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation'
  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
  and c.relnamespace = (select s.relnamespace from pg_catalog.pg_class s where s.oid = 'queue.lease'::pg_catalog.regclass)
  and coalesce(l.pid, 0) <> pg_catalog.pg_backend_pid()
  -- An autovacuum gives way to sessions that wait for it. It has no role.
  and (a.pid is null or a.usesysid is not null)
order by a.xact_start
limit 20
