-- Finds problems with the store's tables, indexes and sequences, and an approaching wraparound of the database's transaction or multixact
-- ids. Returns one row per problem, up to twenty per kind.
-- $1 schema  $5 the store's tables
-- Thresholds above which a value is a problem: $2 dead rows of a table, $3 age of the oldest unfrozen transaction or multixact id,
-- $4 used fraction of a sequence
-- Safe: read-only. Reads only catalogs and statistics.
(select 'bloat' as kind,
  format('%s has %s dead and %s live rows, and was last vacuumed %s', t.relname, t.n_dead_tup, t.n_live_tup,
    coalesce('at ' || to_char(greatest(t.last_vacuum, t.last_autovacuum) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), 'never')) as message,
  format('vacuum %I.%I', t.schemaname, t.relname) as fix,
  jsonb_build_object('table', t.relname, 'dead', t.n_dead_tup, 'living', t.n_live_tup, 'vacuumed_at', greatest(t.last_vacuum, t.last_autovacuum))
    as facts
from pg_catalog.pg_stat_all_tables t
where t.schemaname = $1::name and t.n_dead_tup > $2::bigint and t.n_dead_tup > t.n_live_tup / 5
order by t.n_dead_tup desc
limit 20)
union all
(select 'table_autovacuum_off', format('autovacuum is off for %s', c.relname), format('alter table %I.%I reset (autovacuum_enabled)', $1, c.relname),
  jsonb_build_object('table', c.relname)
from pg_catalog.pg_class c
where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1)
  and exists (select from unnest(c.reloptions) o (option) where o.option ~* '^autovacuum_enabled=(f|of|n|0)')
order by c.relname
limit 20)
union all
-- Finds tables whose row-level security hides rows from this login, or from another login that may read the table.
(select 'row_security', format('row-level security is enabled for %s and hides its rows from logins other than its owner', c.relname),
  format('alter table %I.%I disable row level security', $1, c.relname), jsonb_build_object('table', c.relname)
from pg_catalog.pg_class c
where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1) and c.relname = any ($5::name[]) and c.relrowsecurity
  and (row_security_active(c.oid) or exists (
    select
    from pg_catalog.pg_roles r
    where r.rolcanlogin and not r.rolsuper and not r.rolbypassrls
      and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage'))
      and has_table_privilege(r.oid, c.oid, 'select')
  ))
order by c.relname
limit 20)
union all
(select 'invalid_index', format('the index %s of %s is not valid', i.relname, t.relname),
  format(case when i.relname ~ '_cc(new|old)[0-9]*$' then 'drop index %I.%I' else 'reindex index %I.%I' end, $1, i.relname),
  jsonb_build_object('index', i.relname, 'table', t.relname)
from pg_catalog.pg_index x
join pg_catalog.pg_class i on i.oid = x.indexrelid
join pg_catalog.pg_class t on t.oid = x.indrelid
where t.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1) and not (x.indisvalid and x.indisready and x.indislive)
  -- Excludes indexes that are being built.
  and not exists (select from pg_catalog.pg_stat_progress_create_index p where p.index_relid = x.indexrelid)
order by i.relname
limit 20)
union all
(select 'wraparound', format('the oldest unfrozen transaction id of the database is %s transactions old', greatest(age(d.datfrozenxid),
    mxid_age(d.datminmxid))), 'vacuum (freeze)',
  jsonb_build_object('transactions', age(d.datfrozenxid), 'groups', mxid_age(d.datminmxid))
from pg_catalog.pg_database d
where d.datname = current_database() and greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)) > $3::bigint)
union all
(select 'sequence_end', format('the sequence %s is at %s of %s', s.sequencename, s.last_value, s.max_value), null,
  jsonb_build_object('sequence', s.sequencename, 'last', s.last_value, 'most', s.max_value)
from pg_catalog.pg_sequences s
where s.schemaname = $1 and s.last_value > s.max_value * $4::float8
limit 20)
