-- Transfers the schema of a distributed store's local functions, with all its objects, to the store's owner. Also gives the owner the
-- LOGIN attribute, but no password. The nodes of a cluster connect to each other as the owner when they create partitions.
do $$
declare
  one  record;
begin
  if to_regclass('queue.fence') is null then
    return;
  end if;
  set local lock_timeout = '2s';
  if not (select r.rolcanlogin from pg_roles r where r.rolname = 'queue_role') then
    alter role "queue_role" login;
  end if;
  for one in
    select o.kind, o.name
    from (
      select 'schema' as kind, '"queue_schema_here"' as name
      from pg_namespace n
      where n.nspname = 'queue_schema_here' and pg_get_userbyid(n.nspowner) <> 'queue_role'
      union all
      select 'type', c.oid::regclass::text
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'queue_schema_here' and c.relkind = 'c' and pg_get_userbyid(c.relowner) <> 'queue_role'
      union all
      select 'routine', p.oid::regprocedure::text
      from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = 'queue_schema_here' and pg_get_userbyid(p.proowner) <> 'queue_role'
    ) o
  loop
    execute format('alter %s %s owner to "queue_role"', one.kind, one.name);
  end loop;
  grant all on schema "queue_schema_here" to "queue_role";
  grant all on all routines in schema "queue_schema_here" to "queue_role";
  revoke all on all routines in schema "queue_schema_here" from public;
end
$$;
