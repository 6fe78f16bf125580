-- Returns the current role, its memberships in the store's roles, and the store's roles that lack a privilege required by this release.
-- Also returns the name of one function that such a role cannot execute.
-- $1 schema  $2 roles  $3 for each role, a function that the role must be able to execute
-- Safe: read-only. Reads only catalogs.
with wanted as materialized (
  select r.oid as role, r.rolname, w.function
  from unnest($2::text[], $3::text[]) w (role, function)
  join pg_catalog.pg_roles r on r.rolname = w.role::name
), lacking as materialized (
  select w.rolname, p.proname
  from wanted w
  join pg_catalog.pg_proc p on p.proname = w.function::name
    and p.pronamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1::name)
  where not has_function_privilege(w.role, p.oid, 'execute')
)
select current_user::text as login,
  array(select w.rolname::text from wanted w where pg_has_role(w.role, 'usage') group by w.rolname order by w.rolname) as roles,
  array(select distinct l.rolname::text from lacking l order by 1) as lacking,
  (select min(l.proname::text) from lacking l) as first
