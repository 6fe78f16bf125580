-- Flows: jobs enqueued together, some of which wait for other jobs of the flow to finish.
--
--   node       written with the flow (link_flow); deleted by housekeeping once all jobs of the flow are deleted (prune_nodes)
--   edge       written with the flow; deleted when the source has reached the required state (release_nodes), or the target is no longer
--              waiting (prune_nodes)
--   node_hint  written by the worker that consumes the hint of a source's end (consume_end_hints); consumed by any worker (release_nodes)
--   ready -> parked   a node with sources, in the transaction that enqueues the flow (link_flow)
--   parked -> ready | done (cancelled) | dead   a node whose last edge is deleted (ready), that must not run (done), or whose payload
--                                               cannot be filled (dead), by any worker (release_nodes)
--
-- A node's row in job names the flow (`system`). A claim reads this row anyway, so the worker that ends a job knows whether other jobs
-- are waiting for it. Jobs outside of flows have no additional cost. A node has no counter of its unfinished sources, because sources
-- that end concurrently would wait for each other to update the counter.
--
-- No release is lost: the edges of a waiting node are deleted only under the lock on its entry in parked. The statement after the
-- deletion checks whether any edge is left. Its snapshot includes the deletions of all previous lock holders. A session that does not get
-- the lock writes the hint again.

create table queue.node (
  flow     bigint    not null,  -- id of the flow's first job
  name     text      not null,
  id       bigint    not null,
  after    bigint[]  not null,  -- sources for which the node waits
  on_dead  bigint[]  not null,  -- sources that have to die before the node runs
  ended    text,                -- last recorded state of the node's job
  constraint node_pkey primary key (flow, name),
  constraint node_name_is_bounded check (pg_catalog.octet_length(name) between 1 and 200)
);
create unique index node_by_id on queue.node (id);

create table queue.edge (
  source   bigint   not null,
  target   bigint   not null,
  on_dead  boolean  not null,  -- whether the target waits for the source's death instead of its completion
  if_dead  text     not null,  -- effect on the target if the source dies: hold, cancel, continue
  gives    boolean  not null,  -- whether the target's payload has a placeholder for the source's output
  constraint edge_pkey primary key (source, target),
  constraint edge_if_dead_is_known check (if_dead in ('hold', 'cancel', 'continue'))
);
create index edge_by_target on queue.edge (target, source);

create table queue.node_hint (
  seq    bigint  not null default queue.next_key(),
  id     bigint  not null,
  state  text    not null,  -- outcome, in case the job is deleted before the check
  constraint node_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Returns the effect of an edge once its source has reached `state`: 'open' (the edge is deleted), 'cancel' (the target does not run), or
-- null (the edge stays). Only the edges of dead sources may stay, because an operator may requeue a dead letter. A cancelled, expired or
-- deleted source is not expected to run again.
create function queue.edge_effect(on_dead boolean, if_dead text, state text) returns text
  language sql immutable parallel safe
  return case
    when state in ('completed', 'dead', 'cancelled', 'expired', 'gone') is not true then null
    when on_dead then case when state = 'completed' then 'cancel' else 'open' end
    when state = 'completed' or if_dead = 'continue' then 'open'
    when state = 'dead' and if_dead = 'hold' then null
    else 'cancel'
  end;

-- Returns the placeholder for a node's output in a payload, formatted as in the text of a jsonb value.
create function queue.place_of(name text) returns text
  language sql immutable strict parallel safe
  return pg_catalog.jsonb_build_object('$of', name)::pg_catalog.text;

-- Raises an error that rejects a flow. `name` is the invalid node. `why` is the reason.
create function queue.reject_node(name text, why text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise invalid_parameter_value using message = format('queue.enqueue_flow: the node %s %s', to_json(reject_node.name), reject_node.why);
end
$$;

-- Creates a flow from jobs that the current transaction has enqueued in the order of `ids`. Returns the flow's id, which is the id of its
-- first job. Edge i leads from sources[i] to targets[i], which are indexes into ids, starting at 1. Targets are parked until they are
-- released.
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
    select u.name, count(*) over (partition by u.id) > 1 or not queue.is_written_here(u.id)
      or (j.system ? 'node_of') is not true as is_other
    from unnest(link_flow.ids, link_flow.names) u (id, name)
    left join queue.job j on j.id = u.id
  ) n
  where n.is_other is not false
  limit 1;
  if found then
    perform queue.reject_node(wrong, 'is not a new job: another one holds its uniqueness key');
  end if;
  select n.name into wrong
  from unnest(link_flow.names) n (name)
  group by n.name
  having count(*) > 1 or octet_length(n.name) not between 1 and 200 or n.name ~ '[[:cntrl:]]'
  limit 1;
  if found then
    perform queue.reject_node(wrong, 'appears twice, or its name does not have 1 to 200 bytes without control characters');
  end if;
  if cardinality(link_flow.sources) > 100000 then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a flow has at most 100000 edges; join many nodes in one';
  end if;
  select link_flow.names[e.target] into wrong
  from unnest(link_flow.sources, link_flow.targets) e (source, target)
  where e.source between 1 and e.target - 1 is not true or e.target > cardinality(link_flow.ids);
  if found then
    perform queue.reject_node(wrong, 'precedes a node that it waits for');
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
  left join queue.job j on j.id = m.id and j.fair_id is null and j.key is null
  where j.id is null
  limit 1;
  if found then
    perform queue.reject_node(wrong, 'waits for others, and cannot have an ordering key, a fairness key or run_at');
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

-- Returns whether the current transaction has written the rows of all jobs in `ids` (see queue.is_written_here).
create function queue.are_written_here(ids bigint[]) returns boolean
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
    from unnest(are_written_here.ids) u (id)
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

-- Records the jobs in `ids` as the next batch of a node's parts, starting at position `first`. The current transaction must have enqueued
-- the parts and the node. At most `most` parts run concurrently, and the node finishes once all parts have finished. `total` is the
-- node's number of parts if this batch is the last one, otherwise null.
create function queue.add_parts(node bigint, chunk integer, first bigint, ids bigint[], most integer, total bigint) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  waits  boolean := exists (select from queue.edge e where e.target = add_parts.node);
  all_   bigint := add_parts.first + cardinality(add_parts.ids);
begin
  if not queue.are_written_here(add_parts.node || add_parts.ids) or add_parts.most < 1
    or add_parts.total <> all_
    or exists (select from unnest(add_parts.ids) u (id) join queue.job j on j.id = u.id where (j.system ? 'part_of') is not true)
  then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: parts must be new jobs of a new node, and at least one must be allowed to run';
  end if;
  if all_ > 100000 then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a node has at most 100000 jobs; split more into several nodes';
  end if;
  if exists (select from queue.job j where j.id = add_parts.node and j.system ? 'expires_at') then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: a node with many jobs cannot expire; let its jobs expire instead';
  end if;
  if not queue.insert_chunk(add_parts.node, 'jobs', add_parts.chunk, add_parts.first, add_parts.ids, add_parts.most, waits) then
    raise invalid_parameter_value using message = 'queue.enqueue_flow: these parts already exist';
  end if;
  if waits and exists (
    select from queue.gather_part p join queue.job j on j.id = p.id
    where p.id = any (add_parts.ids) and (not p.held or j.key is not null)
  ) then
    raise invalid_parameter_value using
      message = 'queue.enqueue_flow: a job of a node that waits for others cannot have an ordering key or run_at';
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

-- Release of waiting nodes whose sources have finished.

-- Edge whose source has finished, with the edge's effect. `waits` states whether the edge's target is waiting.
create type queue.edge_decision as (source bigint, target bigint, gives boolean, act text, state text, waits boolean);

-- Inserts the outputs of `sources` into a node's payload. Returns null on success, or the reason for a failure. The transaction must have
-- locked the node's row in job.
create function queue.fill_node(target bigint, sources bigint[], states text[]) returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  filled  text := (select j.payload::text from queue.job j where j.id = fill_node.target);
  size    bigint := 0;
  given   record;
  place   text;
  put     text;
begin
  for given in
    select n.name, u.state, o.output, o.id is not null and u.state = 'completed' as is_given
    from unnest(fill_node.sources, fill_node.states) u (id, state)
    join queue.node n on n.id = u.id
    left join lateral (select u.id, e.output from queue.end_of(u.id) e) o on true
  loop
    if strpos(coalesce(given.output::text, ''), '{"$of": ') > 0 then
      return format('the output of the node %s contains the reserved key $of', to_json(given.name));
    end if;
    place := queue.place_of(given.name);
    put := case
      when given.is_given then jsonb_build_object('$of', given.name, 'was', given.output)
      else jsonb_build_object('$of', given.name, 'ended', given.state) end::text;
    -- The size is calculated before the text is built, because a thousand placeholders for a large output would take gigabytes.
    size := octet_length(filled) + (octet_length(put) - octet_length(place))
      * ((octet_length(filled) - octet_length(replace(filled, place, ''))) / octet_length(place))::bigint;
    exit when size > queue.payload_limit();
    filled := replace(filled, place, put);
  end loop;
  if size > queue.payload_limit() then
    return format('with the outputs of earlier nodes its payload has %s bytes, the limit is %s; return a reference, not the blob',
      size, queue.payload_limit());
  end if;
  update queue.job j set payload = filled::jsonb where j.id = fill_node.target;
  return null;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
  return 'the outputs of earlier nodes cannot be inserted into its payload: ' || sqlerrm;
end
$$;

-- Consumes up to `most` rows of node_hint from position `floor` on, and checks up to `most` edges of the hints' jobs. A node whose last
-- edge is deleted becomes ready. A node that must not run is cancelled, and a node whose payload cannot be filled becomes a dead letter.
-- Edges of targets that no longer wait are deleted.
--
-- Returns the number of consumed hints, the lowest hint, the number of nodes moved, and whether unchecked edges are left. Never waits: if
-- another session has locked a node, the hints of the node's sources are kept. Requires read committed, because the statement that checks
-- for remaining edges must see the deletions by other sessions.
create function queue.release_nodes(floor bigint, most integer, out hints integer, out lowest bigint, out moved integer, out more boolean)
  returns record
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  ids     bigint[];
  input   text[];
  chosen  queue.edge_decision[];
  held    bigint[];
  busy    bigint[];
  free    bigint[];
  edges   tid[];
  gathers tid[];
  died    bigint[] := '{}';
  shut    bigint[];
  lanes   bigint[];
  put_back  integer;
  gone    integer;
  given   record;
  why     text;
begin
  with taken as materialized (
    delete from queue.node_hint
    where ctid = any (array(
      select h.ctid
      from queue.node_hint h
      where h.seq >= release_nodes.floor
      order by h.seq
      limit release_nodes.most
      for update skip locked
    ))
    returning node_hint.seq, node_hint.id, node_hint.state
  )
  select count(*), min(t.seq), array_agg(t.id), array_agg(t.state), 0, false into hints, lowest, ids, input, moved, more from taken t;
  if hints = 0 then
    return;
  end if;
  chosen := array(
    select c.one
    from (
      select row(e.source, e.target, e.gives, a.act, s.state, p.waits)::queue.edge_decision as one, w.weight,
        row_number() over (partition by w.weight order by random()) as nr
      from (select u.id, bool_or(u.state = 'completed') as completed from unnest(ids, input) u (id, state) group by u.id) u
      -- A missing job was either completed and pruned after its retention, or deleted.
      cross join lateral (select coalesce(queue.state_of(u.id), case when u.completed then 'completed' else 'gone' end) as state offset 0) s
      cross join lateral (select e.source, e.target, e.gives, e.on_dead, e.if_dead from queue.edge e where e.source = u.id offset 0) e
      cross join lateral (select queue.edge_effect(e.on_dead, e.if_dead, s.state) as act) a
      cross join lateral (select exists (select from queue.parked p where p.id = e.target and p.names = '{}') as waits offset 0) p
      -- Limits the number of expensive edges per call: at most 64 edges that fill payloads, and one that cancels a node with many jobs.
      cross join lateral (
        select case
          when not p.waits then null
          when e.gives then 64
          when a.act = 'cancel' and exists (select from queue.gather g where g.parent = e.target) then 1
        end as weight) w
      where a.act is not null
    ) c
    where c.weight is null or c.nr <= c.weight
    order by random()
    limit release_nodes.most
  );
  if cardinality(chosen) = 0 then
    return;
  end if;
  delete from queue.edge
  where ctid = any (array(
    select e.at
    from unnest(chosen) c
    cross join lateral (
      select e.ctid as at
      from queue.edge e
      where e.source = c.source and e.target = c.target
      for update skip locked
    ) e
    where not c.waits
  ));
  held := array(
    select p.id
    from queue.parked p
    where p.id = any (array(select distinct c.target from unnest(chosen) c)) and p.names = '{}'
    order by p.id
    for update skip locked
  );
  free := array(
    select j.id
    from queue.job j
    where j.id = any (array(select c.target from unnest(chosen) c join unnest(held) h (id) on h.id = c.target where c.gives))
    order by j.id
    for update skip locked
  );
  held := array(
    select h.id from unnest(held) h (id)
    where h.id not in (select c.target from unnest(chosen) c where c.gives) or h.id in (select f.id from unnest(free) f (id))
  );
  -- Excludes nodes with an edge that another session has locked.
  edges := array(
    select e.ctid
    from queue.edge e
    where e.ctid = any (array(
      select a.at
      from unnest(chosen) c
      cross join lateral (select e.ctid as at from queue.edge e where e.source = c.source and e.target = c.target offset 0) a))
    for update skip locked
  );
  held := array(
    select h.id
    from unnest(held) h (id)
    where h.id not in (
      select c.target
      from unnest(chosen) c
      cross join lateral (select e.ctid as at from queue.edge e where e.source = c.source and e.target = c.target offset 0) a
      where a.at not in (select u.at from unnest(edges) u (at)))
  );
  -- Excludes nodes that are to be cancelled and whose map another session has locked.
  gathers := array(
    select g.ctid
    from queue.gather g
    where g.parent = any (array(select c.target from unnest(chosen) c join unnest(held) h (id) on h.id = c.target where c.act = 'cancel'))
    for update skip locked
  );
  held := array(
    select h.id
    from unnest(held) h (id)
    where h.id not in (
      select c.target
      from unnest(chosen) c
      cross join lateral (select g.ctid as at from queue.gather g where g.parent = c.target offset 0) g
      where c.act = 'cancel' and g.at not in (select u.at from unnest(gathers) u (at)))
  );
  -- Sources of nodes that are still waiting and were excluded above.
  busy := array(
    select distinct c.source
    from unnest(chosen) c
    where c.target not in (select h.id from unnest(held) h (id))
      and exists (select from queue.parked p where p.id = c.target and p.names = '{}')
  );
  more := cardinality(chosen) >= release_nodes.most or (select count(*) from unnest(chosen) c where c.gives and c.waits) >= 64
    or exists (select from unnest(chosen) c where c.act = 'cancel' and c.waits and exists (select from queue.gather g where g.parent = c.target));
  insert into queue.node_hint (id, state)
  select c.source, case when bool_or(c.state = 'completed') then 'completed' else min(c.state) end
  from unnest(chosen) c
  where c.source = any (busy) or more
  group by c.source
  union all
  select u.id, case when bool_or(u.state = 'completed') then 'completed' else min(u.state) end from unnest(ids, input) u (id, state)
  where more and u.id not in (select c.source from unnest(chosen) c)
  group by u.id;
  get diagnostics put_back = row_count;
  -- The form `(x not in (subquery)) is false` makes the planner look up each target in a hash table of `held`, instead of comparing the
  -- target with every id in `held`.
  chosen := array(
    select c
    from unnest(chosen) c
    where (c.target not in (select h.id from unnest(held) h (id))) is false
  );
  delete from queue.edge
  where ctid = any (array(
    select e.at
    from unnest(chosen) c
    cross join lateral (select e.ctid as at from queue.edge e where e.source = c.source and e.target = c.target offset 0) e
  ));
  get diagnostics gone = row_count;
  hints := greatest(hints - put_back, least(gone, 1));
  shut := array(select distinct c.target from unnest(chosen) c where c.act = 'cancel');
  for given in
    select c.target, array_agg(c.source) as sources, array_agg(c.state) as states
    from unnest(chosen) c
    where c.gives and c.target <> all (shut)
    group by c.target
  loop
    why := queue.fill_node(given.target, given.sources, given.states);
    if why is not null then
      with gone as (
        delete from queue.parked p where p.id = given.target returning p.id, p.lane
      ), failed as (
        insert into queue.failure (id, attempt, at, ran_ms, error) select g.id, 0, now(), 0, why from gone g
      )
      insert into queue.dead (id, died_at, lane, attempts, crashes, error)
      select g.id, now(), g.lane, 0, 0, why
      from gone g;
      died := died || given.target;
    end if;
  end loop;
  if cardinality(died) > 0 then
    perform queue.add_end_hints(died);
    perform queue.notify_waiters();
  end if;
  if cardinality(shut) > 0 then
    perform queue.end_waiting(shut, false);
  end if;
  with entered as materialized (
    delete from queue.parked p
    where p.ctid = any (array(
      select p.ctid
      from unnest(held) h (id)
      cross join lateral (select p.ctid from queue.parked p where p.id = h.id offset 0) p
      where not exists (select from queue.edge e where e.target = h.id)
    ))
    returning p.id, p.lane
  ), readied as (
    insert into queue.ready (lane, seq, id)
    select e.lane, queue.next_id(), e.id from entered e
  ), expiring as (
    insert into queue.expiry (at, id)
    select clock_timestamp() + interval '1 second', j.id
    from entered e
    cross join lateral (select j.id, j.system from queue.job j where j.id = e.id offset 0) j
    where j.system ? 'expires_at'
    on conflict do nothing
  )
  select count(*), array_agg(distinct e.lane) into moved, lanes from entered e;
  moved := moved + cardinality(shut) + cardinality(died);
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
end
$$;

-- Starts the parts of a node whose sources have all finished, up to the maximum number of running parts. A repeated call has no effect.
create function queue.open_gather(parent bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  update queue.gather g
  set room = coalesce(g.most, 4611686018427387904), waits = false
  where g.parent = open_gather.parent and g.name = 'jobs'
    and g.waits;
  if found then
    insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
    select g.parent, g.born, g.name, 0, 0, 0, 0
    from queue.gather g
    where g.parent = open_gather.parent and g.name = 'jobs';
    perform queue.wake_keys();
  end if;
end
$$;

-- Checks up to `most` nodes with job ids above `after`. Deletes edges whose target is not waiting, and nodes of flows whose jobs are all
-- deleted. Inserts hints for nodes that have ended but still have an edge that their end affects. Returns the id of the last checked job,
-- or null if no job is left. Skips rows locked by other sessions.
create function queue.prune_nodes(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last  bigint;
begin
  select max(p.id) into last
  from (select n.id from queue.node n where n.id > prune_nodes.after order by n.id limit prune_nodes.most) p;
  delete from queue.edge e
  where (e.source, e.target) in (
    select o.source, o.target
    from queue.edge o
    where o.target > prune_nodes.after and o.target <= last
      and not exists (select from queue.parked p where p.id = o.target and p.names = '{}')
    for update of o skip locked
  );
  insert into queue.node_hint (id, state)
  select s.id, s.state
  from (
    select n.id, coalesce(queue.state_of(n.id), 'gone') as state
    from queue.node n
    where n.id > prune_nodes.after and n.id <= last and exists (select from queue.edge e where e.source = n.id)
    offset 0
  ) s
  where exists (select from queue.edge e where e.source = s.id and queue.edge_effect(e.on_dead, e.if_dead, s.state) is not null);
  delete from queue.node n
  where n.id in (
    select o.id
    from queue.node o
    where o.id > prune_nodes.after and o.id <= last
      and o.flow in (
        select f.flow
        from (select distinct s.flow from queue.node s where s.id > prune_nodes.after and s.id <= last) f
        where not exists (select from queue.node s join queue.job j on j.id = s.id where s.flow = f.flow)
      )
      and not exists (select from queue.edge e where e.source = o.id)
    for update of o skip locked
  );
  return last;
end
$$;

-- Returns up to ten thousand nodes of a flow, in enqueue order. `flow` may be the id of any job of the flow. `after` contains the names of
-- the sources that the node waits for, and `on_dead` contains the names of the sources that have to die before the node runs. `waits`
-- contains the names of the sources whose edges to the node still exist. If the job was deleted, state is the last recorded state. For a
-- node with many jobs, `jobs` is the number of its jobs, and `over` is the number of jobs counted as finished.
create function queue.nodes(flow bigint, most integer default 10000)
  returns table (name text, id bigint, state text, after text[], on_dead text[], waits text[], jobs bigint, over bigint)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
begin atomic
  select n.name, n.id, coalesce(queue.state_of(n.id), n.ended),
    array(select p.name from queue.node p where p.id = any (n.after) order by p.id),
    array(select p.name from queue.node p where p.id = any (n.on_dead) order by p.id),
    array(select p.name from queue.edge e join queue.node p on p.id = e.source where e.target = n.id order by p.id),
    g.total, g.completed + g.dead + g.cancelled
  from queue.node n
  left join queue.gather g on g.parent = n.id and g.name = 'jobs'
  where n.flow = (select o.flow from queue.node o where o.id = nodes.flow)
  order by n.id
  limit least(nodes.most, 10000);
end;

-- Cancels all unfinished nodes of a flow, and returns their number. Waiting nodes finish immediately, and the handlers of running nodes
-- are asked to stop. Retries for about half a second, because a node may move from one state to another between two statements.
-- While sleeping between retries, the function holds no lock that other sessions need.
create function queue.cancel_flow(flow bigint) returns integer
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids    bigint[] := array(
    select n.id from queue.node n where n.flow = (select o.flow from queue.node o where o.id = cancel_flow.flow));
  until  timestamptz := clock_timestamp() + interval '500 ms';
  ended  integer := 0;
  stops  bigint[];
begin
  loop
    ended := ended + (select count(*) from queue.cancel_waiting_all(ids));
    exit when clock_timestamp() >= until or not exists (
      select from unnest(ids) u (id) where queue.state_of(u.id) in ('ready', 'scheduled', 'blocked', 'parked'));
    perform pg_sleep(0.02);
  end loop;
  stops := array(select c.id from queue.cancel_running_all(ids) c (id));
  -- Cancels the nodes that were running during the loop and that workers have since returned to a waiting state.
  ended := ended + (select count(*) from queue.cancel_waiting_all(ids));
  return ended + coalesce(cardinality(stops), 0);
end
$$;

-- Flows enqueued from any language. The nodes are JSON objects, and are checked, enqueued and linked in the caller's transaction.

-- Returns the nodes that a node of enqueue_flow waits for. `on_dead` shows whether the node waits for the source's death, and `gives`
-- whether the node uses the source's output.
create function queue.node_dependencies(node jsonb) returns table (source text, on_dead boolean, gives boolean)
  language sql immutable parallel safe
begin atomic
  select a.source, false, false from jsonb_array_elements_text(coalesce(nullif(node -> 'after', 'null'), '[]')) a (source)
  union all
  select d.source, true, false from jsonb_array_elements_text(coalesce(nullif(node -> 'on_dead', 'null'), '[]')) d (source)
  union all
  select o.place #>> '{}', false, true from jsonb_path_query(node -> 'payload', '$.**."$of"') o (place);
end;

-- Returns an error message if a node of enqueue_flow is invalid, otherwise null. `places` contains the names of all nodes.
create function queue.node_error(node jsonb, places jsonb) returns text
  language sql immutable parallel safe
begin atomic
  select case
    when jsonb_typeof(node) <> 'object' or node ->> 'name' is null then 'is not an object with a name'
    when input.unknown is not null then format('has the unknown key %s', to_json(input.unknown))
    when input.missing is not null then format('waits for %s, which is not in the flow', to_json(input.missing))
    when node ->> 'if_dead' not in ('hold', 'cancel', 'continue') then 'has an if_dead other than hold, cancel or continue'
    when exists (
      select from jsonb_path_query(node -> 'payload', '$.** ? (exists (@."$of"))') o (around)
      where o.around <> jsonb_build_object('$of', o.around -> '$of') or jsonb_typeof(o.around -> '$of') <> 'string'
    ) then 'has a placeholder {"$of": NAME} with other keys beside it'
    when jsonb_path_exists(node -> 'jobs', '$.**."$of"') then 'has many jobs, whose payloads cannot contain placeholders'
    when nullif(node -> 'jobs', 'null') is not null and jsonb_typeof(node -> 'jobs') <> 'array' then 'has jobs that are not an array'
    when input.is_many and nullif(node -> 'payload', 'null') is not null then 'has both jobs and a payload'
    when not input.is_many and nullif(node -> 'in_flight', 'null') is not null then 'has in_flight, but no array of jobs'
  end
  from (
    select (
      select k.key from jsonb_object_keys(case jsonb_typeof(node) when 'object' then node else '{}' end) k (key)
      where k.key not in ('name', 'job_type', 'payload', 'options', 'after', 'on_dead', 'if_dead', 'jobs', 'in_flight') limit 1
    ) as unknown, (
      select w.source from queue.node_dependencies(node) w where not coalesce(places ? w.source, false) limit 1
    ) as missing, nullif(node -> 'jobs', 'null') is not null as is_many
  ) input;
end;

-- Enqueues the job of an enqueue_flow node. For a node with many jobs, enqueues only the job that waits for all of them, in the queue
-- that the node's options or job type specify.
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

-- Returns the queue that workers have published for a job type, or `default`.
create function queue.queue_of_type(job_type text) returns text
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((select t.queue from queue.type_options t where t.job_type = queue_of_type.job_type), 'default');
end;

-- Enqueues the jobs of an enqueue_flow node with many jobs, in batches of a thousand.
create function queue.enqueue_parts(node bigint, input jsonb) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  jobs     bigint := jsonb_array_length(input -> 'jobs');
  options  jsonb := coalesce(nullif(input -> 'options', 'null'), '{}') || jsonb_build_object('system',
    jsonb_build_object('part_of', node || '/jobs'));
  first    bigint := 0;
  ids      bigint[];
  is_new   boolean;
begin
  loop
    select coalesce(array_agg(e.id order by p.place), '{}'), coalesce(bool_and(e.outcome = 'enqueued'), true) into ids, is_new
    from jsonb_array_elements(input -> 'jobs') with ordinality p (payload, place)
    cross join lateral queue.enqueue_with(input ->> 'job_type', p.payload, options) e
    where p.place > first and p.place <= first + 1000;
    if not is_new then
      perform queue.reject_node(input ->> 'name', 'has a job that is not new: another holds its uniqueness key');
    end if;
    perform queue.add_parts(node, (first / 1000)::integer, first, ids, (input ->> 'in_flight')::integer,
      case when first + 1000 >= jobs then jobs end);
    first := first + 1000;
    exit when first >= jobs;
  end loop;
end
$$;

-- Enqueues a flow in the caller's transaction, and returns the flow's id. `nodes` is an array of {"name", "job_type", "payload",
-- "options", "after", "on_dead", "if_dead"}. The last four properties are optional. A node waits for the earlier nodes named in "after"
-- and "on_dead". If a node dies, its "if_dead" determines the effect on the nodes that wait for its completion: hold, cancel or continue.
--
-- A placeholder {"$of": "NAME"} in the payload also makes the node wait for NAME, and becomes {"$of": "NAME", "was": OUTPUT}. A node may
-- have "jobs", an array of payloads, instead of "payload". The node then stands for one job per payload, each with the node's type and
-- options. At most "in_flight" jobs run concurrently. The node completes once all jobs have finished, and its output contains the number
-- of jobs by outcome.
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
    wrong := queue.node_error(node, places);
    if wrong is not null then
      perform queue.reject_node(node ->> 'name', wrong);
    end if;
    select e.id, e.outcome into born from queue.enqueue_node(enqueue_flow.name, node) e;
    if born.outcome <> 'enqueued' then
      perform queue.reject_node(node ->> 'name', 'is not a new job: another one holds its uniqueness key');
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
      cross join lateral queue.node_dependencies(n.node) w
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
