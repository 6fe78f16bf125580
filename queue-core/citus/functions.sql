-- Returns the store's functions, except immutable functions, with the properties needed to create them again.
-- $1 schema  $2 names of functions to omit: functions that run on the coordinator and stay unchanged
select p.proname::text as name, pg_get_functiondef(p.oid) as whole, p.prosrc as body, p.provolatile::text as volatility, p.proretset as many,
  l.lanname::text as language, pg_get_function_identity_arguments(p.oid) as arguments, p.pronargs::int4 as inputs, t.typtype::text as kind,
  format_type(p.prorettype, null) as result,
  coalesce((
    select array_agg(n.name::text order by n.nr)
    from unnest(p.proargnames, p.proargmodes) with ordinality n (name, mode, nr)
    where n.mode = any ('{o,b}'::"char"[])), '{}') as outputs,
  case when p.prolang = (select g.oid from pg_language g where g.lanname = 'sql') and exists (
    select
    from unnest(p.proargnames, p.proargmodes) a (name, mode)
    join unnest(p.proargnames, p.proargmodes) b (name, mode) on b.name = a.name
    where a.mode = 'i' and b.mode = 't')
  then (
    select string_agg(format('%I %s', n.name, format_type(n.type, null)), ', ' order by n.nr)
    from unnest(p.proargnames, p.proargmodes, p.proallargtypes) with ordinality n (name, mode, type, nr)
    where n.mode = 't')
  end as row_type
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
join pg_type t on t.oid = p.prorettype
where n.nspname = $1 and p.prokind = 'f' and p.provolatile <> 'i' and p.proname <> all ($2)
order by p.oid
