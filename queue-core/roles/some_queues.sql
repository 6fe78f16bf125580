-- Permits a producer role to enqueue only into the given queues, which replace the role's earlier list. The role must not be a member of
-- a role that may enqueue into every queue.
create or replace function queue.limits_producers() returns boolean
  language sql immutable
  return true;
alter domain queue.caller drop constraint if exists caller_is_oneself;
alter domain queue.caller add constraint caller_is_oneself check (value operator(pg_catalog.=) current_user);
create or replace function queue.called_by() returns name
  language sql stable
  return current_user;
delete from queue.producer_queue where role operator(pg_catalog.=) 'queue_role';
insert into queue.producer_queue (role, queue)
select 'queue_role', q.name
from (select pg_catalog.unnest(array['queue_names'])) q (name);
