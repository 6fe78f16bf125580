-- Prepares this node for the first write after the store has moved to this node. Runs once per move. Each node has its own sequences, so
-- the function sets the sequences of this node above all numbers drawn on other nodes. The function also resets columns that contain
-- transaction ids, because these ids were assigned by another server.
create or replace function queue_here.arrive(node integer) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  one    record;
  times  bigint;
begin
  perform set_config('citus.enable_ddl_propagation', 'off', true);
  update queue.place l set node = arrive.node, arrivals = l.arrivals + 1 where l.node <> arrive.node returning l.arrivals into times;
  if not found then
    return;
  end if;
  -- Citus gives each node its own range of sequence numbers. The range is removed, because the numbers drawn on this node have to exceed
  -- those of all earlier nodes. ALTER SEQUENCE waits for transactions that have drawn a number, so it runs only if the sequence still has
  -- a range.
  for one in
    select s.schemaname, s.sequencename, s.min_value > 1 or s.max_value < 9223372036854775807 as has_span
    from pg_sequences s
    where s.schemaname = 'queue_schema'
  loop
    if one.has_span then
      execute format('alter sequence %I.%I minvalue 1 maxvalue 9223372036854775807', one.schemaname, one.sequencename);
    end if;
    perform setval(format('%I.%I', one.schemaname, one.sequencename), times << 40);
  end loop;
  -- These columns of queue.capacity contain sequence numbers of another node, which are invalid on this node. With the new values, no
  -- ticket is left, so the next enqueue into each queue with a capacity counts the waiting jobs of the queue.
  update queue.capacity c set since = times << 40, tickets = times << 40, beside = times << 40;
  update queue.lane l set born = pg_current_xact_id();
  update queue.lane l set leaving = pg_current_xact_id(), passed = null, above = null where l.leaving is not null;
end
$$;
