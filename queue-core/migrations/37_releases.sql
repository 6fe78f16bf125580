-- Releases of nodes: what becomes of those that wait, once the jobs that they wait for are over. See 36_flows.sql.

-- An edge whose source is over, what that does, and whether anybody waits at it.
create type queue.decided as (source bigint, target bigint, gives boolean, act text, state text, waits boolean);

-- Puts what these sources gave into the payload of a node whose row we have locked; returns why that cannot be, or null.
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
      return format('what the node %s gave has the key $of, which is ours', to_json(given.name));
    end if;
    place := queue.place_of(given.name);
    put := case
      when given.is_given then jsonb_build_object('$of', given.name, 'was', given.output)
      else jsonb_build_object('$of', given.name, 'ended', given.state) end::text;
    -- How large it becomes is known before it is made: a thousand places for a large output are no gigabytes.
    size := octet_length(filled) + (octet_length(put) - octet_length(place))
      * ((octet_length(filled) - octet_length(replace(filled, place, ''))) / octet_length(place))::bigint;
    exit when size > queue.payload_limit();
    filled := replace(filled, place, put);
  end loop;
  if size > queue.payload_limit() then
    return format('with what the nodes before it gave its payload has %s bytes, the limit is %s; return a reference, not the blob',
      size, queue.payload_limit());
  end if;
  update queue.job j set payload = filled::jsonb where j.id = fill_node.target;
  return null;
exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
  return 'what the nodes before it gave cannot be put into its payload: ' || sqlerrm;
end
$$;

-- Consumes up to `most` hints from the place `floor` on, and looks at up to as many edges of those jobs: a node whose last edge is gone is made
-- ready, one that is not to run is cancelled, and one that cannot be given what it is to be given is a dead letter. Returns how many hints there
-- were, without those that are left, the lowest of them, how many nodes were moved, and whether there are more edges. Waits for nobody: an edge to
-- a node that somebody is at work on keeps its hint. Edges at which nobody waits are deleted. To be called under read committed.
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
  said    text[];
  chosen  queue.decided[];
  held    bigint[];
  busy    bigint[];
  free    bigint[];
  died    bigint[] := '{}';
  shut    bigint[];
  lanes   bigint[];
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
  select count(*), min(t.seq), array_agg(t.id), array_agg(t.state), 0, false into hints, lowest, ids, said, moved, more from taken t;
  if hints = 0 then
    return;
  end if;
  chosen := array(
    select c.one
    from (
      select row(e.source, e.target, e.gives, a.act, s.state, p.waits)::queue.decided as one, w.weight,
        row_number() over (partition by w.weight order by random()) as nr
      from (select u.id, bool_or(u.state = 'completed') as completed from unnest(ids, said) u (id, state) group by u.id) u
      -- What is gone, and was completed, has gone by its retention.
      cross join lateral (select coalesce(queue.state_of(u.id), case when u.completed then 'completed' else 'gone' end) as state offset 0) s
      cross join lateral (select e.source, e.target, e.gives, e.on_dead, e.if_dead from queue.edge e where e.source = u.id offset 0) e
      cross join lateral (select queue.edge_act(e.on_dead, e.if_dead, s.state) as act) a
      cross join lateral (select exists (select from queue.parked p where p.id = e.target and p.names = '{}') as waits offset 0) p
      -- What is put into payloads, and nodes that are many and cancelled, cost more than others.
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
  -- What is not held and still waits has somebody at work on it.
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
  select u.id, case when bool_or(u.state = 'completed') then 'completed' else min(u.state) end from unnest(ids, said) u (id, state)
  where more and u.id not in (select c.source from unnest(chosen) c)
  group by u.id;
  hints := greatest(hints - cardinality(busy), 0);
  -- So asked, it is looked up, and not compared with each.
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
    perform queue.note_ends(died);
    perform queue.tell_waiters();
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

-- Lets the parts of a node run that has waited for others: as many of them as may at once. Said twice, it does so once.
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

-- Looks through the next nodes after this job, `most` of them: deletes edges at which nobody waits and nodes of flows whose jobs are all gone, and
-- leaves hints of ends that nobody told of. Returns the last job that it looked at, or null at the end. Rows that others hold are passed over.
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
  where exists (select from queue.edge e where e.source = s.id and queue.edge_act(e.on_dead, e.if_dead, s.state) is not null);
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

-- The nodes of a flow, in the order in which they were enqueued, with what they wait for: `waits` are those of their edges that are left. Any of its
-- jobs names the flow. Of a job that is gone the state is the last that it came to, if anybody told of that. `jobs` are how many a node is that is
-- many, and `over` how many of these are counted as over. The first ten thousand, or fewer.
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

-- Cancels all nodes of a flow that are not over; returns how many: those that wait are over, those that run are told to stop. Between two looks a
-- node may pass from one state to another: so it looks again, for about half a second, and has nothing locked that others need while it sleeps.
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
  -- What was given back meanwhile waits again.
  ended := ended + (select count(*) from queue.cancel_waiting_all(ids));
  return ended + coalesce(cardinality(stops), 0);
end
$$;
