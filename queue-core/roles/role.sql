-- Creates a group role if it does not exist. Revokes all privileges of the role in the store, except usage of the schema. Users get
-- privileges as members of the role.
do $$
begin
  if exists (select from pg_namespace n where n.nspname = 'queue_schema' and pg_get_userbyid(n.nspowner) = 'queue_role') then
    raise invalid_parameter_value using message = 'the role queue_role owns the store; use another role';
  end if;
  if not exists (select from pg_roles r where r.rolname = 'queue_role') then
    create role "queue_role" nologin;
  end if;
exception when duplicate_object then
  null;  -- another session has created the role
end
$$;
revoke all on all tables in schema "queue_schema" from "queue_role";
revoke all on all sequences in schema "queue_schema" from "queue_role";
revoke all on all routines in schema "queue_schema" from "queue_role";
revoke all on schema "queue_schema" from "queue_role";
grant usage on schema "queue_schema" to "queue_role";
