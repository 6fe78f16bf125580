-- Children: jobs that a durable job spawns and whose ends it waits for.
--
--   child   written with the child's enqueue, under the parent's lease (spawn); given the child's end by whoever ends it, in that transaction
--           (tell_parents), once; deleted with the parent, by housekeeping (prune_children)
--
-- A child's metadata name its parent, and a claim reads metadata in any case: so whoever ends a job knows whether there is anybody to be told, and
-- nothing is written or asked of any other job. A child that is over may go before its parent has looked: what it came to is kept here.
--
-- No wake-up is lost, as with signals: the end and the hint commit together, and whoever consumes a hint looks in the next statement. An end that
-- nobody told of, because an act that is rarer than these has come between, is found by housekeeping.

create table queue.child (
  parent    bigint       not null,
  name      text         not null,  -- the step that spawned it
  id        bigint       not null,
  at        timestamptz  not null default clock_timestamp(),
  state     text,                   -- what it came to; null: it is not over
  attempts  smallint,
  output    jsonb,
  error     text,
  constraint child_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint child_pkey primary key (parent, name),
  constraint child_state_is_an_end
    check (state in ('completed', 'dead', 'cancelled', 'expired'))
);
create index child_by_id on queue.child (id);

-- What a step that waits for the end of a child is called in `parked`, and no signal.
create function queue.join_name(name text) returns text
  language sql immutable strict parallel safe
  return name || ' (join)';

-- Enqueues a job with these options as a child of a job that the lease has, and journals that as a step; returns its id. Null if the lease does not
-- have the parent any more, or somebody cancels it. Said twice, because an answer was lost, it is the child that was spawned first. A job that holds
-- its uniqueness key is nobody's child: then nothing is written.
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
  from queue.enqueue_with(spawn.job_type, spawn.payload, spawn.options || jsonb_build_object('meta',
    coalesce(nullif(spawn.options -> 'meta', 'null'), '{}') || jsonb_build_object('child_of', spawn.parent::text))) e;
  if outcome <> 'enqueued' then
    raise unique_violation using constraint = 'child_is_new',
      message = format('the job %s holds its uniqueness key, and is not spawned here', born);
  end if;
  update queue.child c set id = born where c.parent = spawn.parent and c.name = spawn.name;
  insert into queue.step (id, name, attempt, at, ran_ms, output)
  values (spawn.parent, spawn.name, spawn.attempt, statement_timestamp(), 0, jsonb_build_object('child', born::text));
  return born;
end
$$;

-- Tells the parents of these jobs what those that are over have come to, and leaves each parent a hint; returns how many were told of. To be called
-- in the transaction that ends them, after that. One that is not there any more was completed, and keeps no record. A child tells once.
create function queue.tell_parents(ids bigint[]) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  told  integer;
begin
  with ended as materialized (
    select c.parent, c.name, coalesce(e.state, 'completed') as state, e.attempts, e.output, e.error
    from queue.child c
    left join lateral (select e.state, e.attempts, e.output, e.error from queue.entry_of(c.id) e) e on true
    where c.id = any (tell_parents.ids)
      and c.state is null
      and coalesce(e.state, 'completed') in ('completed', 'dead', 'cancelled', 'expired')
    order by c.id for update of c
  ), noted as (
    update queue.child c
    set state = e.state, attempts = e.attempts, output = e.output, error = e.error, at = clock_timestamp()
    from ended e
    where c.parent = e.parent and c.name = e.name
    returning c.parent
  ), hinted as (
    insert into queue.signal_hint (id)
    select distinct n.parent
    from noted n
  )
  select count(*) into told from noted n;
  perform queue.tell_nodes(tell_parents.ids);
  return told + queue.tell_gathers(tell_parents.ids);
end
$$;

-- Locks what is known of the children of these jobs, in the order in which ends are told of: who writes to several in another order, and whoever
-- tells of them meanwhile, would each wait for the other.
create function queue.lock_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  perform
  from queue.child c
  where c.parent = any (lock_children.parents)
  order by c.id
  for update;
end
$$;

-- Deletes what is known of the children of these jobs: they go on, and are nobody's.
create function queue.forget_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  perform queue.lock_children(forget_children.parents);
  delete from queue.child c
  where c.parent = any (forget_children.parents);
end
$$;

-- Cancels those children of these jobs that are not over, and theirs. To be called once the jobs are over or cancelling: then they spawn no more, and
-- what they have spawned is seen by this, whose snapshot is newer.
create function queue.cancel_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  live  bigint[];
begin
  -- Whoever lets parts run has their gather: those that it moves are seen by the next statement.
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
      from queue.brood b
      cross join lateral unnest(b.ids) u (id)
      cross join lateral (select p.id from queue.gather_part p where p.id = u.id offset 0) p
      where b.parent = any (cancel_children.parents));
  if cardinality(live) > 0 then
    perform queue.cancel_waiting_all(live);
    perform queue.cancel_running_all(live);
  end if;
end
$$;

-- Asks anew what those children of these dead letters came to that were not completed: an operator who brings a parent back may have brought back
-- its children before. To be called by whoever requeues them, in that transaction.
create function queue.ask_children(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  asked  bigint[];
begin
  perform queue.lock_children(ask_children.parents);
  with changed as (
    update queue.child c
    set state = null, attempts = null, output = null, error = null
    where c.parent = any (ask_children.parents)
      and c.state <> 'completed'
    returning c.id
  )
  select array_agg(c.id) into asked from changed c;
  if cardinality(asked) > 0 then
    perform queue.tell_parents(asked);
  end if;
end
$$;

-- Looks through the children of the next jobs after this one, `most` of them: deletes those whose parent is gone, and tells of those that are over
-- and have not told. Returns the last parent that it looked at, or null at the end. Rows that others hold are passed over.
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
    perform queue.tell_parents(late);
  end if;
  return last;
end
$$;

-- The children of a job that is there, in the order in which they were spawned: the first thousand. The state is null of what is not over, and `now`
-- is where that is, of the first hundred of them: null of one that is gone. With its owner's rights, for a reader asks through doors where a job is.
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
