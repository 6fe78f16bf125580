-- Once on each node to which the store has moved, by whoever writes first: numbers go on above all that were drawn elsewhere, for each node has
-- its own; and of what stands in transactions' numbers, which are another server's, nothing holds any more.
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
  -- Each node gives out numbers of its own span, which is lower than another's. Lifted once: it waits for whoever has drawn one.
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
  -- Of the numbers that a queue's capacity was counted by none is left: it is counted anew.
  update queue.capacity c set since = times << 40, tickets = times << 40, beside = times << 40;
  update queue.lane l set born = pg_current_xact_id();
  update queue.lane l set leaving = pg_current_xact_id(), passed = null, above = null where l.leaving is not null;
end
$$;
