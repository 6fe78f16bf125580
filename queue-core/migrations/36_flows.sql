-- Flows: jobs that are enqueued together, of which some wait for the ends of others.
--
--   node       written with the flow (link_flow); deleted once all jobs of its flow are gone, by housekeeping (prune_nodes)
--   edge       written with the flow; deleted when its source has come to what it waits for (release_nodes), or nobody waits at it (prune_nodes)
--   node_hint  written by the worker that consumes the hint of a source's end (tell_ends); consumed by any worker (release_nodes)
--   ready -> parked   a node with parents, in the transaction that enqueues it (link_flow)
--   parked -> ready | done, cancelled | dead   a node whose last edge is gone, that is not to run, or that is too large (release_nodes)
--
-- A node's row in job names its flow (`system`), and a claim reads that row in any case: so a worker that ends a job knows whether another waits for
-- it, and nothing is written or asked of any other job. No counter is kept: those that end at once leave hints, and wait for nobody.
--
-- No release is lost: the edges of a node that waits are deleted only under the lock on its entry in parked, and whether any is left is looked at in
-- the next statement, whose snapshot is newer than what the holder before has committed. Whoever does not get that lock gives the hint back.

create table queue.node (
  flow     bigint    not null,  -- the id of its first job
  name     text      not null,
  id       bigint    not null,
  after    bigint[]  not null,  -- the jobs that it waits for
  on_dead  bigint[]  not null,  -- those that have to die before it runs
  ended    text,                -- what its job came to last
  constraint node_pkey primary key (flow, name),
  constraint node_name_is_bounded check (pg_catalog.octet_length(name) between 1 and 200)
);
create unique index node_by_id on queue.node (id);

create table queue.edge (
  source   bigint   not null,
  target   bigint   not null,
  on_dead  boolean  not null,  -- whether it waits for the death of its source, and not for its completion
  if_dead  text     not null,  -- what becomes of the target if the source dies: hold, cancel, continue
  gives    boolean  not null,  -- whether the payload of the target has a place for what the source gave
  constraint edge_pkey primary key (source, target),
  constraint edge_if_dead_is_known check (if_dead in ('hold', 'cancel', 'continue'))
);
create index edge_by_target on queue.edge (target, source);

create table queue.node_hint (
  seq    bigint  not null default queue.next_key(),
  id     bigint  not null,
  state  text    not null,  -- what it came to, should its job be gone when that is looked at
  constraint node_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- What an edge does once its source has come to this state: 'open' (it is gone), 'cancel' (the target does not run), or null: it waits on.
-- A source that was cancelled, has expired or is gone does not come back by itself: then there is nothing to hold for.
create function queue.edge_act(on_dead boolean, if_dead text, state text) returns text
  language sql immutable parallel safe
  return case
    when state in ('completed', 'dead', 'cancelled', 'expired', 'gone') is not true then null
    when on_dead then case when state = 'completed' then 'cancel' else 'open' end
    when state = 'completed' or if_dead = 'continue' then 'open'
    when state = 'dead' and if_dead = 'hold' then null
    else 'cancel'
  end;

-- The place in a payload for what the node of this name gave, as jsonb prints it.
create function queue.place_of(name text) returns text
  language sql immutable strict parallel safe
  return pg_catalog.jsonb_build_object('$of', name)::pg_catalog.text;

-- Refuses a flow, and says about which of its nodes.
create function queue.refuse_node(name text, why text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise invalid_parameter_value using message = format('queue.enqueue_flow: the node %s %s', to_json(refuse_node.name), refuse_node.why);
end
$$;

-- Makes a flow of jobs that this transaction has enqueued, in their order; returns its id, which is that of the first. The edges are those of
-- sources[i] to targets[i], both places in ids, from 1. Jobs with edges to them wait as parked.
create function queue.link_flow(
  ids bigint[], names text[], sources integer[], targets integer[], on_dead boolean[], if_dead text[], gives boolean[]
)
  returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  wrong  text;
  moved  bigint[];
begin
  if coalesce(cardinality(link_flow.ids), 0) = 0 then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a flow has at least one node';
  end if;
  select n.name into wrong
  from (
    select u.name, count(*) over (partition by u.id) > 1 or not queue.is_ours(u.id)
      or (j.system ? 'node_of') is not true as is_other
    from unnest(link_flow.ids, link_flow.names) u (id, name)
    left join queue.job j on j.id = u.id
  ) n
  where n.is_other is not false
  limit 1;
  if found then
    perform queue.refuse_node(wrong, 'is no new job: another holds its uniqueness key');
  end if;
  select n.name into wrong
  from unnest(link_flow.names) n (name)
  group by n.name
  having count(*) > 1 or octet_length(n.name) not between 1 and 200 or n.name ~ '[[:cntrl:]]'
  limit 1;
  if found then
    perform queue.refuse_node(wrong, 'is there twice, or has not 1 to 200 bytes without control characters');
  end if;
  if cardinality(link_flow.sources) > 100000 then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a flow has at most 100000 edges; put a node between many and many';
  end if;
  select link_flow.names[e.target] into wrong
  from unnest(link_flow.sources, link_flow.targets) e (source, target)
  where e.source between 1 and e.target - 1 is not true or e.target > cardinality(link_flow.ids);
  if found then
    perform queue.refuse_node(wrong, 'stands before a node that it waits for');
  end if;
  with taken as materialized (
    select t.id, t.lane, t.run_at
    from queue.take_waiting(array(select distinct link_flow.ids[e.target] from unnest(link_flow.targets) e (target)), true) t
  ), waiting as (
    insert into queue.parked (id, lane, attempts, crashes, since, names)
    select t.id, t.lane, 0, 0, clock_timestamp(), '{}'
    from taken t
    where t.run_at is null
    returning parked.id
  )
  select coalesce(array_agg(w.id), '{}') into moved from waiting w;
  select link_flow.names[e.target] into wrong
  from (select distinct u.target from unnest(link_flow.targets) u (target)) e
  left join unnest(moved) m (id) on m.id = link_flow.ids[e.target]
  left join queue.job j on j.id = m.id and j.line is null and j.key is null
  where j.id is null
  limit 1;
  if found then
    perform queue.refuse_node(wrong, 'waits for others, and takes no ordering key, no fair key and no time to run at');
  end if;
  insert into queue.edge (source, target, on_dead, if_dead, gives)
  select link_flow.ids[e.source], link_flow.ids[e.target], e.on_dead, e.if_dead, e.gives
  from unnest(link_flow.sources, link_flow.targets, link_flow.on_dead, link_flow.if_dead, link_flow.gives)
    e (source, target, on_dead, if_dead, gives);
  insert into queue.node (flow, name, id, after, on_dead)
  select link_flow.ids[1], n.name, n.id,
    coalesce(array_agg(link_flow.ids[e.source] order by e.source) filter (where not e.on_dead), '{}'),
    coalesce(array_agg(link_flow.ids[e.source] order by e.source) filter (where e.on_dead), '{}')
  from unnest(link_flow.ids, link_flow.names) with ordinality n (id, name, place)
  left join unnest(link_flow.sources, link_flow.targets, link_flow.on_dead) e (source, target, on_dead) on e.target = n.place
  group by n.id, n.name;
  return link_flow.ids[1];
end
$$;

-- As queue.is_ours, of each of these jobs.
create function queue.are_ours(ids bigint[]) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  written  bigint;
  today    bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  for written in
    select distinct j.xmin::text::bigint
    from unnest(are_ours.ids) u (id)
    left join lateral (select j.xmin from queue.job j where j.id = u.id offset 0) j on true
  loop
    written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;
    if (pg_xact_status(written::text::xid8) = 'in progress') is not true then
      return false;
    end if;
  end loop;
  return true;
end
$$;

-- Says that these jobs, which our transaction has enqueued as it has this node, are parts of the node from the place `first` on, as its next chunk:
-- it is over once they are, and at most so many run at once. `total`, with the last of them, is how many there are in all.
create function queue.add_parts(node bigint, chunk integer, first bigint, ids bigint[], most integer, total bigint) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  waits  boolean := exists (select from queue.edge e where e.target = add_parts.node);
  all_   bigint := add_parts.first + cardinality(add_parts.ids);
begin
  if not queue.are_ours(add_parts.node || add_parts.ids) or add_parts.most < 1
    or add_parts.total <> all_
    or exists (select from unnest(add_parts.ids) u (id) join queue.job j on j.id = u.id where (j.system ? 'part_of') is not true)
  then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: parts are new jobs of a new node, and at least one runs at once';
  end if;
  if all_ > 100000 then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a node is at most 100000 jobs; make several nodes of more';
  end if;
  if exists (select from queue.job j where j.id = add_parts.node and j.system ? 'expires_at') then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a node that is many jobs does not expire; let its jobs expire';
  end if;
  if not queue.put_chunk(add_parts.node, 'jobs', add_parts.chunk, add_parts.first, add_parts.ids, add_parts.most, waits) then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: these parts are there already';
  end if;
  if waits and exists (
    select from queue.gather_part p join queue.job j on j.id = p.id
    where p.id = any (add_parts.ids) and (not p.held or j.key is not null)
  ) then
    raise invalid_parameter_value using
      message = 'queue.enqueue_flow: a job of a node that waits for others takes no ordering key and no time to run at';
  end if;
  if add_parts.total is not null then
    update queue.gather g
    set need = g.need - 1, total = add_parts.total
    where g.parent = add_parts.node and g.name = 'jobs' and g.total is null;
    insert into queue.step (id, name, attempt, at, ran_ms, output)
    values (add_parts.node, 'jobs', 0, clock_timestamp(), 0, jsonb_build_object('map', add_parts.total));
  end if;
end
$$;
