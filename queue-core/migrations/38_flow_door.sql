-- Flows from other languages: nodes as JSON, checked, enqueued and linked in the caller's transaction. See 36_flows.sql.

-- Whom a node of enqueue_flow waits for, and how.
create function queue.waits_of_node(node jsonb) returns table (source text, on_dead boolean, gives boolean)
  language sql immutable parallel safe
begin atomic
  select a.source, false, false from jsonb_array_elements_text(coalesce(nullif(node -> 'after', 'null'), '[]')) a (source)
  union all
  select d.source, true, false from jsonb_array_elements_text(coalesce(nullif(node -> 'on_dead', 'null'), '[]')) d (source)
  union all
  select o.place #>> '{}', false, true from jsonb_path_query(node -> 'payload', '$.**."$of"') o (place);
end;

-- What is wrong with a node of enqueue_flow, or null. `places` are the names of all.
create function queue.fault_of_node(node jsonb, places jsonb) returns text
  language sql immutable parallel safe
begin atomic
  select case
    when jsonb_typeof(node) <> 'object' or node ->> 'name' is null then 'is no object with a name'
    when said.unknown is not null then format('has the key %s, which is not known', to_json(said.unknown))
    when said.missing is not null then format('waits for %s, which is not in the flow', to_json(said.missing))
    when node ->> 'if_dead' not in ('hold', 'cancel', 'continue') then 'says if_dead, and neither hold, cancel nor continue'
    when exists (
      select from jsonb_path_query(node -> 'payload', '$.** ? (exists (@."$of"))') o (around)
      where o.around <> jsonb_build_object('$of', o.around -> '$of') or jsonb_typeof(o.around -> '$of') <> 'string'
    ) then 'has a place {"$of": NAME} with something beside it'
    when jsonb_path_exists(node -> 'jobs', '$.**."$of"') then 'is many jobs, in whose payloads there is no place for what others gave'
    when nullif(node -> 'jobs', 'null') is not null and jsonb_typeof(node -> 'jobs') <> 'array' then 'has jobs that are no array'
    when said.is_many and nullif(node -> 'payload', 'null') is not null then 'has both jobs and a payload'
    when not said.is_many and nullif(node -> 'in_flight', 'null') is not null then 'says in_flight, and is not many jobs'
  end
  from (
    select (
      select k.key from jsonb_object_keys(case jsonb_typeof(node) when 'object' then node else '{}' end) k (key)
      where k.key not in ('name', 'job_type', 'payload', 'options', 'after', 'on_dead', 'if_dead', 'jobs', 'in_flight') limit 1
    ) as unknown, (
      select w.source from queue.waits_of_node(node) w where not coalesce(places ? w.source, false) limit 1
    ) as missing, nullif(node -> 'jobs', 'null') is not null as is_many
  ) said;
end;

-- Enqueues the job of a node of enqueue_flow: of one that is many jobs, that which waits for them, in their queue.
create function queue.enqueue_node(flow text, node jsonb, out id bigint, out outcome text) returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  is_many  boolean := nullif(node -> 'jobs', 'null') is not null;
  options  jsonb := coalesce(nullif(node -> 'options', 'null'), '{}');
begin
  if is_many then
    options := jsonb_build_object('meta', coalesce(options -> 'meta', 'null'),
      'queue', coalesce(options ->> 'queue', queue.queue_of_type(node ->> 'job_type')));
  end if;
  options := options || jsonb_build_object('system', jsonb_build_object('node_of', flow));
  select e.id, e.outcome into enqueue_node.id, enqueue_node.outcome
  from queue.enqueue_with(
    case when is_many then 'queue:gather' else node ->> 'job_type' end, case when is_many then '{}' else node -> 'payload' end, options) e;
end
$$;

-- The queue that a type says it goes to.
create function queue.queue_of_type(job_type text) returns text
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((select t.queue from queue.type_options t where t.job_type = queue_of_type.job_type), 'default');
end;

-- Enqueues the parts of a node of enqueue_flow, a thousand at a time.
create function queue.enqueue_parts(node bigint, said jsonb) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  jobs     bigint := jsonb_array_length(said -> 'jobs');
  options  jsonb := coalesce(nullif(said -> 'options', 'null'), '{}') || jsonb_build_object('system',
    jsonb_build_object('part_of', node || '/jobs'));
  first    bigint := 0;
  ids      bigint[];
  is_new   boolean;
begin
  loop
    select coalesce(array_agg(e.id order by p.place), '{}'), coalesce(bool_and(e.outcome = 'enqueued'), true) into ids, is_new
    from jsonb_array_elements(said -> 'jobs') with ordinality p (payload, place)
    cross join lateral queue.enqueue_with(said ->> 'job_type', p.payload, options) e
    where p.place > first and p.place <= first + 1000;
    if not is_new then
      perform queue.refuse_node(said ->> 'name', 'has a job that is not new: another holds its uniqueness key');
    end if;
    perform queue.add_parts(node, (first / 1000)::integer, first, ids, (said ->> 'in_flight')::integer, case when first + 1000 >= jobs then jobs end);
    first := first + 1000;
    exit when first >= jobs;
  end loop;
end
$$;

-- Enqueues a flow in the caller's transaction, and returns its id. Nodes are an array, each {"name", "job_type", "payload", "options", "after",
-- "on_dead", "if_dead"}: the last four may be left out. A node waits for those whose names are in "after" and "on_dead", which stand before it; a
-- place {"$of": "NAME"} in its payload is an edge too, and becomes {"$of": "NAME", "was": OUTPUT}. "if_dead" says what becomes of those after this
-- one if it dies: hold, cancel or continue. A node with "jobs", an array of payloads, instead of "payload", is all of these, of its type and with its
-- options, at most "in_flight" of them at once; it has completed once they are over, and gives their counts.
create function queue.enqueue_flow(name text, nodes jsonb) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  places   jsonb := (
    select jsonb_object_agg(coalesce(n.node ->> 'name', ''), n.place)
    from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place));
  names    text[] := array(select n.node ->> 'name' from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place) order by n.place);
  policies text[] := array(
    select coalesce(n.node ->> 'if_dead', 'hold') from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place) order by n.place);
  ids      bigint[] := '{}';
  node     jsonb;
  place    bigint;
  born     record;
  wrong    text;
begin
  for node, place in select n.node, n.place from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place) order by n.place loop
    wrong := queue.fault_of_node(node, places);
    if wrong is not null then
      perform queue.refuse_node(node ->> 'name', wrong);
    end if;
    select e.id, e.outcome into born from queue.enqueue_node(enqueue_flow.name, node) e;
    if born.outcome <> 'enqueued' then
      perform queue.refuse_node(node ->> 'name', 'is no new job: another holds its uniqueness key');
    end if;
    ids := ids || born.id;
  end loop;
  perform queue.link_flow(ids, names, e.sources, e.targets, e.on_dead, e.if_dead, e.gives)
  from (
    select coalesce(array_agg(e.source order by e.target, e.source), '{}') as sources,
      coalesce(array_agg(e.target order by e.target, e.source), '{}') as targets,
      coalesce(array_agg(e.on_dead order by e.target, e.source), '{}') as on_dead,
      coalesce(array_agg(policies[e.source] order by e.target, e.source), '{}') as if_dead,
      coalesce(array_agg(e.gives order by e.target, e.source), '{}') as gives
    from (
      select (places ->> w.source)::integer as source, n.place::integer as target, bool_or(w.on_dead) as on_dead, bool_or(w.gives) as gives
      from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place)
      cross join lateral queue.waits_of_node(n.node) w
      group by (places ->> w.source)::integer, n.place
    ) e
  ) e;
  for node, place in
    select n.node, n.place
    from jsonb_array_elements(enqueue_flow.nodes) with ordinality n (node, place)
    where nullif(n.node -> 'jobs', 'null') is not null
    order by n.place
  loop
    perform queue.enqueue_parts(ids[place], node);
  end loop;
  return ids[1];
end
$$;
