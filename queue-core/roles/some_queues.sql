-- Into these queues only: the last ones said for this role. It must not be a member of a role that may enqueue into every queue.
create or replace function queue.limits_producers() returns boolean
  language sql immutable
  return true;
create or replace function queue.seal() returns text
  language plpgsql volatile
as $$
begin
  return (select c.seal from queue.caller c);
end
$$;
delete from queue.producer_queue where role operator(pg_catalog.=) 'queue_role';
insert into queue.producer_queue (role, queue)
select 'queue_role', q.name
from (select pg_catalog.unnest(array['queue_names'])) q (name);
