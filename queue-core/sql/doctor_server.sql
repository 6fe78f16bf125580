-- Finds settings and states of the server, the database, the login and this connection that impair a store. Returns one row per kind of
-- finding.
-- $1 minimum timeout in ms  $2 minimum number of free sessions  $3 networks in which a connection needs no encryption
-- Safe: read-only.
with setting as materialized (
  -- Reads the login's default timeouts, because this transaction has set its own timeouts.
  select s.name, s.reset_val as setting
  from pg_catalog.pg_settings s
  where s.name in ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
    'max_connections', 'superuser_reserved_connections', 'reserved_connections')
), short as materialized (
  select string_agg(format('%s = %s ms', s.name, s.setting), ', ' order by s.name) as names, min(s.name) as first
  from setting s
  where s.name in ('statement_timeout', 'lock_timeout') and s.setting::bigint > 0 and s.setting::bigint < $1::bigint
), ending as materialized (
  select string_agg(format('%s = %s ms', s.name, s.setting), ', ' order by s.name) as names, min(s.name) as first
  from setting s
  where s.name in ('transaction_timeout', 'idle_session_timeout') and s.setting::bigint > 0
), places as materialized (
  select min(p.most) as most, min(p.most - p.used) as room
  from (
    select (select sum(case when s.name = 'max_connections' then s.setting::bigint else - s.setting::bigint end) from setting s
        where s.name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
      (select sum(d.numbackends)::bigint from pg_catalog.pg_stat_database d)
    union all
    select d.datconnlimit, b.numbackends
    from pg_catalog.pg_database d
    join pg_catalog.pg_stat_database b on b.datid = d.oid
    where d.datname = current_database() and d.datconnlimit >= 0
    union all
    select r.rolconnlimit, (select count(*) from pg_catalog.pg_stat_activity a where a.usesysid = r.oid)
    from pg_catalog.pg_roles r
    where r.rolname = current_user and r.rolconnlimit >= 0
  ) p (most, used)
)
select f.kind, f.message, f.fix, f.facts
from short h
cross join ending e
cross join places p
cross join lateral (values
  ('standby', pg_is_in_recovery(), 'the server is a standby and accepts no writes', null::text, '{}'::jsonb),
  ('read_only', current_setting('default_transaction_read_only') = 'on', 'transactions of this login are read-only',
    format('alter role %I set default_transaction_read_only = off', current_user), '{}'),
  ('fsync_off', current_setting('fsync') = 'off', 'fsync is off', 'alter system set fsync = on; select pg_reload_conf()', '{}'),
  ('full_page_writes_off', current_setting('full_page_writes') = 'off', 'full_page_writes is off',
    'alter system set full_page_writes = on; select pg_reload_conf()', '{}'),
  ('relaxed_commits', current_setting('synchronous_commit') = 'off', 'synchronous_commit is off for this login',
    format('alter role %I set synchronous_commit = on', current_user), '{}'),
  ('autovacuum_off', current_setting('autovacuum') = 'off', 'autovacuum is off',
    'alter system set autovacuum = on; select pg_reload_conf()', '{}'),
  ('track_counts_off', current_setting('track_counts') = 'off', 'track_counts is off',
    'alter system set track_counts = on; select pg_reload_conf()', '{}'),
  ('isolation', current_setting('default_transaction_isolation') <> 'read committed',
    format('transactions of this login are %s', current_setting('default_transaction_isolation')),
    format('alter role %I set default_transaction_isolation = ''read committed''', current_user),
    jsonb_build_object('isolation', current_setting('default_transaction_isolation'))),
  ('short_timeout', h.names is not null, format('this login has %s', h.names), format('alter role %I set %s = ''60s''', current_user, h.first), '{}'),
  ('ends_sessions', e.names is not null, format('this login has %s', e.names), format('alter role %I set %s = 0', current_user, e.first), '{}'),
  ('open_transactions', (select s.setting from setting s where s.name = 'idle_in_transaction_session_timeout') = '0',
    'a session may stay idle in its transaction without limit',
    format('alter database %I set idle_in_transaction_session_timeout = ''10min''', current_database()), '{}'),
  ('few_connections', p.room < $2::bigint, format('%s of %s connections are left', p.room, p.most), null,
    jsonb_build_object('left', p.room, 'most', p.most)),
  ('not_encrypted', inet_client_addr() is not null
      and not exists (select from pg_catalog.pg_stat_ssl s where s.pid = pg_backend_pid() and s.ssl)
      and not exists (select from unnest($3::text[]) n (network) where inet_client_addr() <<= network(n.network::inet)),
    format('the connection from %s is not encrypted', host(inet_client_addr())), null,
    jsonb_build_object('from', host(inet_client_addr())))
) f (kind, found, message, fix, facts)
where f.found
