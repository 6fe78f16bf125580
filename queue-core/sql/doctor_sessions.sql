-- Finds what prevents vacuum from removing dead rows: sessions and prepared transactions of this database, replication slots, and
-- standbys. Also finds workers that log in as superusers. Returns one row per finding, up to twenty per kind.
-- $1 age in ms above which a transaction is returned
-- $2 age in transactions above which a snapshot with an unknown start time is returned
-- Safe: read-only, and never waits for a lock. The result contains only those details of other sessions that the current role may see.
(select 'long_transaction' as kind,
  format('session %s (%s, %s) has been in a transaction %s', a.pid, a.usename,
    case when a.application_name = '' then 'without an application name' else a.application_name end,
    coalesce('since ' || to_char(a.xact_start at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), 'for a long time')) as message,
  format('select pg_terminate_backend(%s)', a.pid) as fix,
  jsonb_build_object('pid', a.pid, 'role', a.usename, 'application', a.application_name, 'since', a.xact_start, 'state', a.state) as facts
from pg_catalog.pg_stat_activity a
where a.datname = current_database() and a.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and case when a.xact_start is null then age(coalesce(a.backend_xmin, a.backend_xid)) > $2::bigint
    else a.xact_start < clock_timestamp() - $1::float8 * interval '1 ms' end
order by a.xact_start nulls last
limit 20)
union all
(select 'prepared_transaction',
  format('the prepared transaction %L of %s is pending since %s', p.gid, p.owner, to_char(p.prepared at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
  format('rollback prepared %L', p.gid), jsonb_build_object('gid', p.gid, 'role', p.owner, 'since', p.prepared)
from pg_catalog.pg_prepared_xacts p
where p.database = current_database() and p.prepared < clock_timestamp() - $1::float8 * interval '1 ms'
order by p.prepared
limit 20)
union all
(select 'replication_slot', format('the replication slot %s keeps rows of the last %s transactions', r.slot_name, age(r.xmin)),
  case when not r.active then format('select pg_drop_replication_slot(%L)', r.slot_name) end,
  jsonb_build_object('slot', r.slot_name, 'active', r.active, 'transactions', age(r.xmin))
from pg_catalog.pg_replication_slots r
where r.xmin is not null and age(r.xmin) > $2::bigint
limit 20)
union all
(select 'standby_feedback',
  format('the standby %s (session %s) keeps rows of the last %s transactions', s.application_name, s.pid, age(s.backend_xmin)), null,
  jsonb_build_object('pid', s.pid, 'standby', s.application_name, 'transactions', age(s.backend_xmin))
from pg_catalog.pg_stat_replication s
where s.backend_xmin is not null and age(s.backend_xmin) > $2::bigint
limit 20)
union all
select 'superuser_worker', format('workers log in as %s, a superuser', a.usename), null, jsonb_build_object('role', a.usename)
from pg_catalog.pg_stat_activity a
join pg_catalog.pg_roles r on r.oid = a.usesysid and r.rolsuper
where a.datname = current_database() and a.application_name = 'queue-worker heartbeat'
group by a.usename
