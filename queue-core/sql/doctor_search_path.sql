-- Checks the schemas of the search path and the schema public. Finds objects in these schemas that shadow built-in functions or operators,
-- and schemas in which PUBLIC may create objects. Also finds privileges of PUBLIC in the store, and objects in the store's schema that do
-- not belong to the store. Lists at most the first twenty objects of each kind.
-- $1 schema
-- Safe: read-only. Reads only catalogs.
with open as materialized (
  select n.oid, n.nspname
  from pg_catalog.pg_namespace n
  where n.nspname = any (current_schemas(false) || 'public'::name) and n.nspname <> $1::name
), planted as materialized (
  select 'routine' as kind, format('%I.%I(%s)', o.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) as name
  from pg_catalog.pg_proc p
  join open o on o.oid = p.pronamespace
  where p.proname in (select c.proname from pg_catalog.pg_proc c where c.pronamespace = 'pg_catalog'::regnamespace)
    and not exists (select from pg_catalog.pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'::"char")
  union all
  select 'operator', format('%I.%s (%s, %s)', o.nspname, p.oprname,
    case when p.oprleft = 0::oid then 'none' else format_type(p.oprleft, null) end, format_type(p.oprright, null))
  from pg_catalog.pg_operator p
  join open o on o.oid = p.oprnamespace
  where p.oprname in (select c.oprname from pg_catalog.pg_operator c where c.oprnamespace = 'pg_catalog'::regnamespace)
    and not exists (select from pg_catalog.pg_depend d where d.classid = 'pg_operator'::regclass and d.objid = p.oid and d.deptype = 'e'::"char")
), ours as materialized (
  -- The owner of the table job, which may differ from the schema's owner.
  select n.oid, coalesce(
    (select c.relowner from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = 'job' and c.relkind = 'p'::"char"), n.nspowner
  ) as owner
  from pg_catalog.pg_namespace n
  where n.nspname = $1
), granted as materialized (
  select 'the schema' as name
  from pg_catalog.pg_namespace n
  where n.nspname = $1 and exists (select from aclexplode(n.nspacl) a where a.grantee = 0::oid)
  union all
  select c.relname::text
  from pg_catalog.pg_class c
  join ours n on n.oid = c.relnamespace
  where exists (select from aclexplode(c.relacl) a where a.grantee = 0::oid)
    or exists (
      select
      from pg_catalog.pg_attribute t
      cross join lateral aclexplode(t.attacl) a
      where t.attrelid = c.oid and a.grantee = 0::oid
    )
  union all
  select format('%I.%I(%s)', $1::name, p.proname, pg_get_function_identity_arguments(p.oid))
  from pg_catalog.pg_proc p
  join ours n on n.oid = p.pronamespace
  where exists (select from aclexplode(coalesce(p.proacl, acldefault('f'::"char", p.proowner))) a where a.grantee = 0::oid)
), foreign_one as materialized (
  select 'trigger' as kind, format('%I on %I.%I', t.tgname, $1::name, c.relname) as name
  from pg_catalog.pg_trigger t
  join pg_catalog.pg_class c on c.oid = t.tgrelid
  join ours n on n.oid = c.relnamespace
  where not t.tgisinternal
  union all
  select 'routine', format('%I.%I(%s)', $1::name, p.proname, pg_get_function_identity_arguments(p.oid))
  from pg_catalog.pg_proc p
  join ours n on n.oid = p.pronamespace and n.owner <> p.proowner
  union all
  select case when c.relkind = 'v'::"char" then 'view' when c.relkind = 'f'::"char" then 'foreign table' else 'table' end,
    format('%I.%I', $1::name, c.relname)
  from pg_catalog.pg_class c
  join ours n on n.oid = c.relnamespace and n.owner <> c.relowner
  where c.relkind in ('r'::"char", 'p'::"char", 'v'::"char", 'f'::"char")
)
select 'planted' as kind, format('%s functions and operators outside pg_catalog shadow its names, such as %s', count(*),
    (select string_agg(f.name, ', ') from (select p.name from planted p order by p.name limit 5) f)) as message,
  (select string_agg(format('drop %s %s', f.kind, f.name), '; ') from (select p.kind, p.name from planted p order by p.name limit 20) f) as fix,
  jsonb_build_object('found', count(*), 'first', (select jsonb_agg(f.name) from (select p.name from planted p order by p.name limit 20) f)) as facts
from planted
having count(*) > 0
union all
select 'open_schema', format('PUBLIC may create objects in the schema %I', o.nspname), format('revoke create on schema %I from public', o.nspname),
  jsonb_build_object('schema', o.nspname)
from open o
where exists (
  select
  from pg_catalog.pg_namespace n
  cross join lateral aclexplode(n.nspacl) a
  where n.oid = o.oid and a.grantee = 0::oid and a.privilege_type = 'CREATE'
)
union all
select 'public_grants', format('PUBLIC has rights on %s objects of the store, such as %s', count(*),
    (select string_agg(f.name, ', ') from (select g.name from granted g order by g.name limit 5) f)),
  format('revoke all on schema %1$I from public; revoke all on all tables in schema %1$I from public; '
    || 'revoke all on all sequences in schema %1$I from public; revoke all on all routines in schema %1$I from public', $1),
  jsonb_build_object('found', count(*), 'first', (select jsonb_agg(f.name) from (select g.name from granted g order by g.name limit 20) f))
from granted
having count(*) > 0
union all
select 'foreign_object', format('%s %s is in the store''s schema but not part of the store', f.kind, f.name), format('drop %s %s', f.kind, f.name),
  jsonb_build_object('object', f.kind || ' ' || f.name)
from (select o.kind, o.name from foreign_one o order by o.kind, o.name limit 20) f
