-- Doors: what a role may do that has no right to the tables. Each runs with the rights of the store's owner, under a search_path of its own (but
-- insert_job names all schemas instead), checks what it is asked, and does one thing. roles/*.sql says who may use which; a store that nobody was
-- let into is its owner's alone.
--
--   producer_*   enqueue, for those who may not write to queue.job; the functions of 6_enqueue.sql and the statements go through them by themselves
--   worker_*     days, for those who may not create tables
--   reader_*     jobs without payload and output, for those who may not read them
--
-- The other doors need nothing but their owner's rights: they stand where they belong (insert_job, channel, notify, status, look, wait, the acts,
-- set_capacity, pause, resume).

-- Whether the caller needs no door to enqueue.
create function queue.is_trusted() returns boolean
  language sql stable
  return pg_catalog.has_table_privilege('queue.job'::regclass, 'insert');

-- Who may execute this may enqueue into every queue; any other producer only into those that queue.producer_queue names.
create function queue.any_queue() returns boolean
  language sql immutable
  return true;

-- Whether any producer is for some queues only. A constant costs the others nothing: it is replaced with the first such producer
-- (roles/some_queues.sql).
create function queue.limits_producers() returns boolean
  language sql immutable
  return false;

-- The queues of such producers, by their roles.
create table queue.producer_queue (
  role   name  not null,
  queue  text  not null,
  constraint producer_queue_pkey primary key (role, queue),
  constraint producer_queue_is_a_name check (queue.is_name(queue))
);

-- Refuses an enqueue into a queue that is not the caller's. It names the schema of everything in it, as insert_job.
create function queue.check_queue(queue text, caller name) returns void
  language plpgsql stable
as $$
begin
  if pg_catalog.has_function_privilege(caller, 'queue.any_queue()'::pg_catalog.regprocedure, 'execute') is not true
    and not exists (
      select
      from queue.producer_queue p
      where p.queue operator(pg_catalog.=) check_queue.queue
        and pg_catalog.pg_has_role(caller, pg_catalog.to_regrole(pg_catalog.quote_ident(p.role)), 'usage')
    )
  then
    raise insufficient_privilege using
      message = pg_catalog.format('queue.enqueue: the role %s may not enqueue into the queue %s', caller, check_queue.queue),
      hint = 'See `queue-worker roles --producer`.';
  end if;
end
$$;

-- As queue.enqueue without options.
create function queue.producer_enqueue(job_type text, payload jsonb, caller queue.caller default queue.called_by()) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  typed  queue.type_options;
begin
  select p.* into typed from queue.type_options p where p.job_type = producer_enqueue.job_type;
  if typed.expires is not null or strpos(producer_enqueue.job_type, '@') > 0 then
    return (select d.id from queue.producer_enqueue_with(producer_enqueue.job_type, producer_enqueue.payload, '{}', producer_enqueue.caller) d);
  end if;
  return queue.insert_job(producer_enqueue.job_type, producer_enqueue.payload, coalesce(typed.queue, 'default'),
    coalesce(typed.priority, 100), coalesce(typed.max_attempts, 20), caller => producer_enqueue.caller);
end
$$;

-- As queue.enqueue_with. The queue that was checked is the one that is enqueued into, whatever workers publish meanwhile.
create function queue.producer_enqueue_with(
  job_type text, payload jsonb, options jsonb, caller queue.caller default queue.called_by(), out id bigint, out outcome text
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  said    jsonb := producer_enqueue_with.options;
  chosen  text;
begin
  if said ? 'system' and ((said -> 'system') - '{child_of,node_of,part_of}'::text[] = '{}') is not true then
    raise invalid_parameter_value using message = 'queue.enqueue: there is no option system';
  end if;
  if queue.limits_producers() then
    chosen := (queue.read_options(producer_enqueue_with.job_type, said)).queue;
    perform queue.check_queue(chosen, producer_enqueue_with.caller);
    said := said || jsonb_build_object('queue', chosen);
  end if;
  select e.id, e.outcome into producer_enqueue_with.id, producer_enqueue_with.outcome
  from queue.enqueue_with(producer_enqueue_with.job_type, producer_enqueue_with.payload, said) e;
end
$$;

-- As queue.lock_keys. Whoever enqueues under keys locks them in any case.
create function queue.producer_lock_keys(queues text[], keys text[], every boolean) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.lock_keys(producer_lock_keys.queues, producer_lock_keys.keys, producer_lock_keys.every);
end
$$;

-- As queue.add_days, for as many days ahead as may be wanted.
create function queue.worker_add_days(ahead integer) returns integer
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if worker_add_days.ahead between 0 and 60 is not true then
    raise invalid_parameter_value using message = format('queue.worker_add_days: from 0 to 60 days ahead, not %s', worker_add_days.ahead);
  end if;
  return queue.add_days(worker_add_days.ahead);
end
$$;

-- As queue.drop_day, of days that are over, and never so many survivors that others wait for long.
create function queue.worker_drop_day(retention interval) returns date
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if worker_drop_day.retention >= '0' is not true then
    raise invalid_parameter_value using
      message = format('queue.worker_drop_day: history is kept for some time or none, not for %s', worker_drop_day.retention);
  end if;
  return queue.drop_day(worker_drop_day.retention);
end
$$;

-- As queue.list, which says what is meant. Plans itself for the call, whatever the caller's settings are: by a plan that was kept since the days were
-- empty a page could take minutes, and to compile it takes ten times as long as to look.
--
-- Jobs of the newest day or two are looked through first, for a plan that opens a month of days takes longer than the look. The others are opened
-- only if those do not have the page.
create function queue.list_of(
  in_state text, in_queue text, job_types text[], before bigint, most integer, in_error text, since interval, older_than interval, payloads boolean,
  in_meta jsonb, looked integer
)
  returns table (
    horizon bigint,
    id bigint, queue text, job_type text, priority smallint, state text, attempts smallint, max_attempts smallint, crashes smallint,
    run_at timestamptz, finished_at timestamptz, ran_ms integer, worker uuid, cancelling boolean, error text, output jsonb, payload jsonb, meta jsonb,
    system jsonb, version smallint
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  lowest  bigint := greatest(queue.day_before(least(queue.enqueued_at(list_of.before), now() - coalesce(list_of.older_than, '0'))), 0);
  found_  queue.listed[];
begin
  loop
    found_ := array(
      select p
      from queue.pick(in_state, in_queue, list_of.job_types, list_of.before, list_of.most, in_error, list_of.since, list_of.older_than, in_meta,
        list_of.looked, lowest) p
    );
    exit when lowest = 0 or found_[1].horizon > lowest or (select count(p.id) from unnest(found_) p) >= list_of.most;
    lowest := 0;
  end loop;
  lowest := (select min(p.id) from unnest(found_) p);
  return query
  select p.horizon, p.id, l.queue, queue.type_of(l.job_type), l.priority, p.state, p.attempts, j.max_attempts, p.crashes, p.run_at, p.finished_at,
    p.ran_ms, p.worker, p.cancelling, left(coalesce(d.error, f.error), 500),
    case when payloads then (select d.output from queue.done d where d.id = p.id and d.id >= lowest) end, case when payloads then j.payload end,
    j.meta, j.system, queue.version_of(l.job_type)
  from unnest(found_) p
  left join lateral (
    select j.lane, j.max_attempts, j.payload, j.meta, j.system from queue.job j where j.id = p.id and j.id >= lowest offset 0
  ) j on true
  left join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l on true
  left join lateral (select d.error from queue.dead d where p.state = 'dead' and d.id = p.id offset 0) d on true
  left join lateral (
    select f.error
    from queue.failure f
    where f.id = p.id and f.id >= lowest and p.attempts > 0 and p.state in ('ready', 'scheduled', 'parked', 'running')
    order by f.at desc
    limit 1
  ) f on true
  where p.id is null or j.lane is not null
  order by p.id desc;
end
$$;

-- Jobs, the newest first, each once with its state: those in this state, of this queue, of one of these job types, below this id; with this text
-- in the error of a dead letter; not older than since, at least as old as older_than, by the end of a job that is over and by the enqueue
-- of any other; whose metadata contain this object. Null is any. Payload and output only if asked for.
-- What it costs does not grow with the jobs that there are, but for those that are blocked or run. Of others only so many are looked at when not
-- all are wanted: `looked` rows of done and of done_many, five times as many that are scheduled, parked or dead, half as many that run or whose
-- metadata are asked for. `horizon` is the lowest id down to which this leaves nothing out: nothing older is listed, and the next page goes on from
-- there (before => horizon). Null: everything was looked at. A page without jobs is one row with its horizon.
create function queue.list(
  state text default null, queue text default null, job_types text[] default null, before bigint default 9223372036854775807,
  most integer default 50, error text default null, since interval default null, older_than interval default null,
  payload boolean default false, meta jsonb default null, looked integer default 5000
)
  returns table (
    horizon bigint,
    id bigint, queue text, job_type text, priority smallint, state text, attempts smallint, max_attempts smallint, crashes smallint,
    run_at timestamptz, finished_at timestamptz, ran_ms integer, worker uuid, cancelling boolean, error text, output jsonb, payload jsonb, meta jsonb,
    system jsonb, version smallint
  )
  language sql stable
begin atomic
  select l.*
  from queue.list_of(list.state, list.queue, list.job_types, list.before, list.most, list.error, list.since, list.older_than, list.payload, list.meta,
    list.looked) l;
end;

-- As queue.list, without payload and output.
create function queue.reader_list(
  in_state text default null, in_queue text default null, job_types text[] default null, before bigint default 9223372036854775807,
  most integer default 50, in_error text default null, since interval default null, older_than interval default null,
  in_meta jsonb default null, looked integer default 5000
)
  returns table (
    horizon bigint,
    id bigint, queue text, job_type text, priority smallint, state text, attempts smallint, max_attempts smallint, crashes smallint,
    run_at timestamptz, finished_at timestamptz, ran_ms integer, worker uuid, cancelling boolean, error text, meta jsonb,
    system jsonb, version smallint
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select l.horizon, l.id, l.queue, l.job_type, l.priority, l.state, l.attempts, l.max_attempts, l.crashes, l.run_at, l.finished_at, l.ran_ms,
      l.worker, l.cancelling, l.error, l.meta, l.system, l.version
    from queue.list_of(
      in_state, in_queue, reader_list.job_types, reader_list.before, reader_list.most, in_error, reader_list.since,
      reader_list.older_than, false, in_meta, reader_list.looked
    ) l;
end
$$;

-- As queue.find, without payload and output.
create function queue.reader_find(job bigint)
  returns table (
    id bigint, queue text, job_type text, priority smallint, state text, attempts smallint, max_attempts smallint, crashes smallint,
    run_at timestamptz, finished_at timestamptz, ran_ms integer, worker uuid, cancelling boolean, error text, meta jsonb,
    system jsonb, version smallint
  )
  language plpgsql stable security definer rows 1
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
begin
  return query
    select f.id, f.queue, f.job_type, f.priority, f.state, f.attempts, f.max_attempts, f.crashes, f.run_at, f.finished_at, f.ran_ms, f.worker,
      f.cancelling, f.error, f.meta, f.system, f.version
    from queue.find(reader_find.job, false) f;
end
$$;

-- Each job once, with its state.
create view queue.jobs as
  select
    e.id, l.queue, queue.type_of(l.job_type) as job_type, l.priority, e.state, e.attempts, j.max_attempts, e.crashes,
    queue.enqueued_at(e.id) as enqueued_at, e.run_at, e.finished_at, e.worker, e.error, e.output, j.payload, j.meta,
    j.system, queue.version_of(l.job_type) as version
  from (
    select r.id, r.lane, 'ready'::text as state, r.attempts, r.crashes,
      null::timestamptz as run_at, null::timestamptz as finished_at, null::uuid as worker, null::text as error, null::jsonb as output
    from queue.ready r
    union all
    select s.id, s.lane, 'scheduled', s.attempts, s.crashes, s.run_at, null, null, null, null
    from queue.scheduled s
    union all
    select p.id, p.lane, 'parked', p.attempts, p.crashes, p.run_at, null, null, null, null
    from queue.parked p
    union all
    select b.id, b.lane, 'blocked', 0::smallint, 0::smallint, b.run_at, null, null, null, null
    from queue.blocked b
    union all
    select u.id, null, 'running', u.attempts, u.crashes, null, null, h.worker, null, null
    from queue.lease h cross join lateral unnest(h.ids, h.attempts, h.crashes) u (id, attempts, crashes)
    union all
    select d.id, null, case when d.expired then 'expired' when d.cancelled then 'cancelled' else 'completed' end, d.attempts, 0::smallint, null,
      d.finished_at, null, null, d.output
    from queue.done d
    union all
    select j.id, m.lane, 'completed', 1::smallint, 0::smallint, null, m.finished_at, null, null, null
    from queue.job j
    cross join lateral (
      select m.lane, m.finished_at
      from queue.done_many m
      where m.first_id between (j.id >> 33) << 33 and j.id and m.last_id >= j.id and j.id = any (m.ids)
      order by m.first_id desc
      limit 1
    ) m
    union all
    select d.id, d.lane, 'dead', d.attempts, d.crashes, null, d.died_at, null, d.error, null
    from queue.dead d
  ) e
  join queue.job j on j.id = e.id
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = coalesce(e.lane, j.lane) limit 1) l;

-- Every worker with a heartbeat row, and how many jobs it holds. One that is not alive is silent: its jobs are about to be recovered.
create function queue.workers()
  returns table (
    id uuid, name text, host text, pid integer, version text, queues text[], started_at timestamptz, expires_at timestamptz, alive boolean,
    jobs bigint, busy integer, slots integer, memory bigint
  )
  language sql stable
begin atomic
  select w.id, w.name, w.host, w.pid, w.version, w.queues, w.started_at, w.expires_at, w.expires_at > pg_catalog.now() as alive,
    (select coalesce(pg_catalog.sum(pg_catalog.cardinality(h.ids)), 0) from queue.lease h where h.worker = w.id)::bigint as jobs,
    case when w.expires_at > pg_catalog.now() then w.busy end, w.slots, case when w.expires_at > pg_catalog.now() then w.memory end
  from queue.worker w
  order by w.started_at, w.id;
end;

-- Every job that is not over: whatever happens to its day, it must stay.
create view queue.living as
  select id from queue.ready
  union all select id from queue.scheduled
  union all select id from queue.parked
  union all select unnest(ids) from queue.lease
  union all select id from queue.dead
  union all select id from queue.blocked;

-- The jobs of an ordering key that are not over, in its order: the head, which runs or waits for its turn or is dead and holds the key up, and those
-- that are blocked behind it. An entry of an index for each. A door, for heads and hashes of keys are not for whoever looks.
create function queue.key_line(queue text, key text, most integer)
  returns table (seq bigint, id bigint)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  line_  bigint := queue.key_id(key_line.queue, key_line.key);
begin
  return query
  select l.seq, l.id
  from (
    (select a.seq, a.id from queue.active_key a where a.key = line_ limit 1)
    union all
    (select b.seq, b.id from queue.blocked b where b.key = line_ order by b.seq limit key_line.most)
  ) l
  order by l.seq
  limit key_line.most;
end
$$;
