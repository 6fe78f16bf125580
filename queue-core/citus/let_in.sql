-- Extends the role's privileges to the local functions of a distributed store. A role that may call a store function may also call its
-- local counterpart. Every role may call the functions that look up the store's node, fence a write or send a notification. A role that
-- may delete leases may also call `relay`, which sends stored notifications. A role that may read a view may also call the local function
-- that replaces the view.
do $$
declare
  given  text;
begin
  if to_regclass('queue.fence') is null then
    return;
  end if;
  revoke all on all routines in schema "queue_schema_here" from "queue_role";
  grant usage on schema "queue_schema_here" to "queue_role";
  grant select on queue.place to "queue_role";
  -- Fencing a write requires privileges on the empty table queue.fence. On the store's node, the fence is an insert without rows. On any
  -- other node, it is a delete that matches no row.
  grant select, insert, delete on queue.fence to "queue_role";
  if queue.limits_producers() then
    create or replace function "queue_schema_here".called_by() returns name language sql stable as 'select current_user';
  end if;
  given := (
    select string_agg(h.oid::regprocedure::text, ', ')
    from pg_proc h
    join pg_namespace n on n.oid = h.pronamespace
    where n.nspname = 'queue_schema_here' and (
      h.proname = any ('{is_here,held,send}') or h.proname = 'holds' and h.pronargs = 0
      or h.proname = 'relay' and has_table_privilege('queue_role', 'queue.lease'::regclass, 'delete')
      or exists (
        select
        from pg_proc p
        join pg_namespace s on s.oid = p.pronamespace
        cross join lateral aclexplode(p.proacl) a
        where s.nspname = 'queue_schema' and p.proname = h.proname and p.proargtypes = h.proargtypes and a.grantee = '"queue_role"'::regrole)
      or h.pronargs = 0 and exists (
        select
        from pg_class c
        join pg_namespace s on s.oid = c.relnamespace
        where s.nspname = 'queue_schema' and c.relkind = 'v' and c.relname = h.proname and has_any_column_privilege('queue_role', c.oid, 'select'))
    ));
  execute format('grant execute on function %s to "queue_role"', given);
end
$$;
