-- Creates the role that owns the store. SECURITY DEFINER functions run with the privileges of this role, which owns only the store. The
-- role cannot log in, except on a Citus cluster, whose nodes connect as the owner. The previous owner becomes a member of the role, and
-- can still migrate the store.
do $$
declare
  before  name := (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'queue_schema');
  one     record;
begin
  set local lock_timeout = '2s';
  if not exists (select from pg_roles r where r.rolname = 'queue_role') then
    create role "queue_role" nologin;
  end if;
  for one in select u.name from (select before union select current_user) u (name) loop
    if not pg_has_role(one.name, 'queue_role', 'usage') then
      execute format('grant "queue_role" to %I', one.name);
    end if;
  end loop;
  if before <> 'queue_role' then
    alter schema "queue_schema" owner to "queue_role";
  end if;
  -- A sequence that belongs to a table column changes its owner only together with the table, so sequences come last.
  for one in
    select o.kind, o.name
    from (
      select case c.relkind when 'v' then 'view' when 'S' then 'sequence' when 'c' then 'type' else 'table' end as kind,
        c.oid::regclass::text as name
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'queue_schema' and c.relkind = any ('{r,p,v,S,c}') and pg_get_userbyid(c.relowner) <> 'queue_role'
      union all
      select 'domain', t.oid::regtype::text
      from pg_type t
      join pg_namespace n on n.oid = t.typnamespace
      where n.nspname = 'queue_schema' and t.typtype = 'd' and pg_get_userbyid(t.typowner) <> 'queue_role'
      union all
      select 'routine', p.oid::regprocedure::text
      from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = 'queue_schema' and pg_get_userbyid(p.proowner) <> 'queue_role'
    ) o
    order by o.kind = 'sequence'
  loop
    execute format('alter %s %s owner to "queue_role"', one.kind, one.name);
  end loop;
end
$$;
-- Restores privileges that were revoked from the owner.
grant all on schema "queue_schema" to "queue_role";
grant all on all tables in schema "queue_schema" to "queue_role";
grant all on all sequences in schema "queue_schema" to "queue_role";
grant all on all routines in schema "queue_schema" to "queue_role";
