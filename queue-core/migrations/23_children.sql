-- Children: jobs that a durable job spawns and waits for.
--
--   child     written with the child's enqueue, under the parent's lease (spawn); gets the child's outcome once (consume_end_hints);
--             deleted after the parent, by housekeeping (prune_children)
--   end_hint  written in the transaction that ends a child, a part of a map or a node of a flow (add_end_hints); consumed by any worker
--             (consume_end_hints)
--
-- The child's row in job names the parent (`system`). A claim reads this row anyway, so the worker that ends a job knows whether another
-- job is waiting for it. Jobs without a parent have no additional cost. A transaction that ends jobs only inserts a hint, and does not
-- wait for locks on rows of the waiting jobs. `child` keeps the outcome, because a finished child may be deleted before its parent reads
-- the outcome.
--
-- No wake-up is lost, for the same reason as with signals (22_durable.sql): the end and its hint commit together, and the consumer of the
-- hint checks the child in its next statement. In rare concurrent cases a job ends without a hint. Housekeeping adds the missing hint
-- (prune_children).

create table queue.child (
  parent    bigint       not null,
  name      text         not null,  -- step that spawned the child
  id        bigint       not null,
  at        timestamptz  not null default clock_timestamp(),
  state     text,                   -- outcome; null: unfinished
  attempts  smallint,
  output    jsonb,
  error     text,
  constraint child_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint child_pkey primary key (parent, name),
  constraint child_state_is_an_end
    check (state in ('completed', 'dead', 'cancelled', 'expired'))
);
create index child_by_id on queue.child (id);

create table queue.end_hint (
  seq    bigint    not null default queue.next_key(),
  state  text      not null,  -- outcome of the jobs, in case they are deleted before the check
  ids    bigint[]  not null,
  constraint end_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Inserts end hints (end_hint) for the jobs in `ids`, which have reached `state`. With a null state, inserts hints only for jobs that have
-- finished and that other jobs may be waiting for. A missing job counts as completed, because completed jobs may have no record. Must be
-- called in the transaction that ends the jobs, after the statements that end them.
create function queue.add_end_hints(ids bigint[], state text default null) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
begin
  insert into queue.end_hint (state, ids)
  select s.state, array_agg(s.id)
  from (
    select u.id, u.nr, coalesce(add_end_hints.state, queue.state_of(u.id), 'completed') as state
    from unnest(add_end_hints.ids) with ordinality u (id, nr)
    where add_end_hints.state is not null
      or exists (select from queue.child c where c.id = u.id)
      or exists (select from queue.gather_part p where p.id = u.id)
      or exists (select from queue.node n where n.id = u.id)
    offset 0
  ) s
  where s.state in ('completed', 'dead', 'cancelled', 'expired', 'gone')
  group by s.state, (s.nr - 1) / 200;
end
$$;

-- Consumes up to `most` rows of end_hint from position `floor` on, and records that their jobs have ended. For a child, the outcome is
-- stored in its record. For a part of a map, the map's count is updated through another hint. For a node of a flow, the outcome is stored
-- in the node.
--
-- Returns the number of consumed hints, the lowest hint, the number of jobs processed, and the number of jobs whose hints are kept. Waits
-- at most 100 ms for each lock: if another session has locked a job's row, the job's hint is kept and the other hints are consumed.
-- Requires read committed, because each statement must see everything committed before its start.
create function queue.consume_end_hints(
  floor bigint, most integer, out hints integer, out lowest bigint, out processed integer, out kept integer
)
  returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
  set lock_timeout = '100ms'
as $$
declare
  jobs        bigint[];
  input       text[];
  busy        bigint[] := '{}';
  left_       bigint[];
  count_      integer;
  is_careful  boolean := false;
begin
  with taken as materialized (
    delete from queue.end_hint
    where ctid = any (array(
      select h.ctid
      from queue.end_hint h
      where h.seq >= consume_end_hints.floor
      order by h.seq
      limit consume_end_hints.most
      for update skip locked
    ))
    returning end_hint.seq, end_hint.state, end_hint.ids
  ), last as (
    -- Only the last state counts if a job was requeued and has ended again.
    select distinct on (u.id) u.id, t.state
    from taken t
    cross join unnest(t.ids) u (id)
    order by u.id, t.seq desc
  )
  select (select count(*) from taken), (select min(t.seq) from taken t), array_agg(l.id), array_agg(l.state), 0, 0
  into hints, lowest, jobs, input, processed, kept
  from last l;
  if hints = 0 then
    return;
  end if;
  -- Records the outcomes of children, each only once. A child that an operator has requeued is recorded when it ends again. Locked rows
  -- are skipped and their hints kept, because the locking transaction may be about to reset the child's outcome.
  begin
    with ended as materialized (
      select c.at, c.id, coalesce(e.state, u.state) as state, e.attempts, e.output, e.error
      from unnest(jobs, input) u (id, state)
      cross join lateral (select c.ctid as at, c.id from queue.child c where c.id = u.id offset 0) c
      left join lateral (select e.state, e.attempts, e.output, e.error from queue.entry_of(c.id) e) e on true
      where coalesce(e.state, u.state) in ('completed', 'dead', 'cancelled', 'expired')
    ), held as materialized (
      select c.ctid as at
      from queue.child c
      where c.ctid = any (array(select e.at from ended e))
      for update skip locked
    ), noted as (
      update queue.child c
      set state = e.state, attempts = e.attempts, output = e.output, error = e.error, at = clock_timestamp()
      from ended e
      where c.ctid = e.at and c.ctid = any (array(select h.at from held h))
        and c.state is null
      returning c.parent
    ), hinted as (
      insert into queue.signal_hint (id)
      select distinct n.parent
      from noted n
    )
    select array_agg(e.id) filter (where e.at not in (select h.at from held h)), (select count(*) from noted)
    into left_, count_
    from ended e;
    busy := busy || left_;
    processed := processed + count_;
  exception when lock_not_available then
    busy := busy || queue.ids_in('queue.child', jobs);
  end;
  -- Counts ended parts of maps. Only the session that deletes a part's row counts the part. There may be many parts, so the outcomes of
  -- completed parts are not read again. The first pass deletes the rows directly. If another session has locked a row for too long,
  -- the second pass locks the rows first and skips locked rows.
  loop
    begin
      with parts as materialized (
        select p.at, u.id, s.state
        from unnest(jobs, input) u (id, state)
        cross join lateral (select p.ctid as at from queue.gather_part p where p.id = u.id offset 0) p
        cross join lateral (select case when u.state = 'completed' then u.state else coalesce(queue.state_of(u.id), u.state) end as state) s
        where s.state in ('completed', 'dead', 'cancelled', 'expired')
      ), gone as materialized (
        delete from queue.gather_part p
        where p.ctid = any (case
          when not is_careful then array(select p.at from parts p)
          else array(select p.ctid from queue.gather_part p where p.ctid = any (array(select p.at from parts p)) for update skip locked) end)
        returning p.id, p.parent, p.born, p.name, p.held
      ), hinted as (
        insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
        select g.parent, g.born, g.name, count(*) filter (where p.state = 'completed'), count(*) filter (where p.state = 'dead'),
          count(*) filter (where p.state in ('cancelled', 'expired')),
          count(*) filter (where not g.held)
        from gone g
        join parts p on p.id = g.id
        group by g.parent, g.born, g.name
      )
      select array_agg(p.id) filter (where p.id not in (select g.id from gone g)), (select count(*) from gone)
      into left_, count_
      from parts p;
      busy := busy || left_;
      processed := processed + count_;
      exit;
    exception when lock_not_available then
      if is_careful then
        busy := busy || queue.ids_in('queue.gather_part', jobs);
        exit;
      end if;
      is_careful := true;
    end;
  end loop;
  -- Records the outcomes of flow nodes.
  begin
    with ended as materialized (
      select n.at, n.id, coalesce(s.state, u.state) as state
      from unnest(jobs, input) u (id, state)
      cross join lateral (select n.ctid as at, n.id from queue.node n where n.id = u.id offset 0) n
      cross join lateral (select queue.state_of(n.id) as state offset 0) s
      where coalesce(s.state, u.state) in ('completed', 'dead', 'cancelled', 'expired', 'gone')
    ), held as materialized (
      select n.ctid as at
      from queue.node n
      where n.ctid = any (array(select e.at from ended e))
      for update skip locked
    ), noted as (
      update queue.node n
      set ended = e.state
      from ended e
      where n.ctid = e.at and n.ctid = any (array(select h.at from held h))
      returning n.id, n.ended
    ), hinted as (
      insert into queue.node_hint (id, state)
      select n.id, n.ended
      from noted n
      where exists (select from queue.edge o where o.source = n.id)
    )
    select array_agg(e.id) filter (where e.id not in (select n.id from noted n)), (select count(*) from noted)
    into left_, count_
    from ended e;
    busy := busy || left_;
    processed := processed + count_;
  exception when lock_not_available then
    busy := busy || queue.ids_in('queue.node', jobs);
  end;
  if cardinality(busy) > 0 then
    -- Inserts the kept hints again. The next poll, a second later, finds them. `busy` is read in a subquery, because the planner hashes a
    -- subquery but would compare each job with every element of an array.
    insert into queue.end_hint (state, ids)
    select u.state, array_agg(u.id)
    from unnest(jobs, input) with ordinality u (id, state, nr)
    where u.id in (select b.id from unnest(busy) b (id))
    group by u.state, (u.nr - 1) / 200;
    get diagnostics count_ = row_count;
    hints := greatest(hints - count_, least(processed, 1));
    kept := cardinality(busy);
  end if;
end
$$;

-- Returns the name under which `parked` lists a step that waits for a child or a map. queue.signal rejects such names.
create function queue.join_name(name text) returns text
  language sql immutable strict parallel safe
  return name || ' (join)';

-- Enqueues a job as a child of a leased job, journals the child as a step of the parent, and returns the child's id. Returns null if the
-- lease no longer holds the parent, or the parent has a pending cancellation. A call repeated after a lost response returns the id of the
-- child that the first call spawned. If an existing job holds the child's uniqueness key, raises an error and writes nothing.
create function queue.spawn(token uuid, parent bigint, attempt integer, name text, job_type text, payload jsonb, options jsonb)
  returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  born     bigint;
  outcome  text;
begin
  perform
  from queue.lease l
  where l.token = spawn.token and spawn.parent = any (l.ids)
    and spawn.parent = any (l.cancelling) is not true
  for share;
  if not found then
    return null;
  end if;
  insert into queue.child (parent, name, id)
  values (spawn.parent, spawn.name, 0)
  on conflict do nothing;
  if not found then
    return (select c.id from queue.child c where c.parent = spawn.parent and c.name = spawn.name);
  end if;
  select e.id, e.outcome into born, outcome
  from queue.enqueue_with(spawn.job_type, spawn.payload, spawn.options || jsonb_build_object('system',
    jsonb_build_object('child_of', spawn.parent::text))) e;
  if outcome <> 'enqueued' then
    raise unique_violation using constraint = 'child_is_new',
      message = format('the job %s holds its uniqueness key, so no child was spawned', born);
  end if;
  update queue.child c set id = born where c.parent = spawn.parent and c.name = spawn.name;
  insert into queue.step (id, name, attempt, at, ran_ms, output)
  values (spawn.parent, spawn.name, spawn.attempt, statement_timestamp(), 0, jsonb_build_object('child', born::text));
  return born;
end
$$;

-- Deletes the child records of `parents`. The children continue without a parent.
create function queue.forget_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  delete from queue.child c
  where c.parent = any (forget_children.parents);
end
$$;

-- Cancels the unfinished children and map parts of `parents`, including their descendants. The parents must have finished already, or be
-- marked for cancellation, so that they spawn no further children. Each statement of this function takes a new snapshot, and therefore
-- sees all children spawned before.
create function queue.cancel_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  live  bigint[];
begin
  -- Waits for sessions that have locked a map of `parents` and are making its parked parts ready. The next statement then sees the parts
  -- that these sessions have made ready.
  perform
  from queue.gather g
  where g.parent = any (cancel_children.parents)
  order by g.parent, g.name
  for update;
  live := array(
    select c.id
    from queue.child c
    where c.parent = any (cancel_children.parents)
      and c.state is null)
    || array(
      select p.id
      from queue.map_batch b
      cross join lateral unnest(b.ids) u (id)
      cross join lateral (select p.id from queue.gather_part p where p.id = u.id offset 0) p
      where b.parent = any (cancel_children.parents));
  if cardinality(live) > 0 then
    perform queue.cancel_waiting_all(live);
    perform queue.cancel_running_all(live);
  end if;
end
$$;

-- Clears the recorded outcomes of the children that did not complete, and adds hints, so that their current outcomes are recorded. An
-- operator may have requeued such children before their parents. Must be called in the transaction that requeues the parents.
create function queue.reset_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  asked  bigint[];
begin
  with changed as (
    update queue.child c
    set state = null, attempts = null, output = null, error = null
    where c.parent = any (reset_children.parents)
      and c.state <> 'completed'
    returning c.id
  )
  select array_agg(c.id) into asked from changed c;
  if cardinality(asked) > 0 then
    perform queue.add_end_hints(asked);
  end if;
end
$$;

-- Checks up to `most` children of parents with ids above `after`. Deletes the records of deleted parents, and inserts hints for finished
-- children without a recorded outcome. Returns the id of the last checked parent, or null if no parent is left. Skips rows locked by
-- other sessions.
create function queue.prune_children(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last  bigint;
  late  bigint[];
begin
  select max(p.parent) into last
  from (select c.parent from queue.child c where c.parent > prune_children.after order by c.parent limit prune_children.most) p;
  delete from queue.child c
  where (c.parent, c.name) in (
    select o.parent, o.name
    from queue.child o
    where o.parent > prune_children.after and o.parent <= last
      and not exists (select from queue.job j where j.id = o.parent)
    for update of o skip locked
  );
  late := array(
    select c.id
    from queue.child c
    where c.parent > prune_children.after and c.parent <= last and c.state is null
      and coalesce(queue.state_of(c.id), 'completed') in ('completed', 'dead', 'cancelled', 'expired')
    for update of c skip locked
  );
  if cardinality(late) > 0 then
    perform queue.add_end_hints(late);
  end if;
  return last;
end
$$;

-- Returns the first thousand children of an existing job, in the order of their ids. `state` is null for an unfinished child. `now` is the
-- current state, which is returned only for the first hundred unfinished children and is null for deleted children. SECURITY DEFINER,
-- because readers query jobs only through entry points.
create function queue.children(job bigint) returns table (name text, id bigint, state text, now text)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  return query
  select c.name, c.id, c.state,
    case when c.state is null and row_number() over (partition by c.state is null order by c.id) <= 100 then queue.state_of(c.id) end
  from (
    select c.name, c.id, c.state
    from queue.child c
    where c.parent = children.job
      and exists (select from queue.job j where j.id = children.job)
    order by c.id
    limit 1000
  ) c
  order by c.id;
end
$$;
