-- SECURITY DEFINER entry points for roles without privileges on the tables. Each entry point runs with the rights of the store's owner,
-- and checks its arguments. Each sets its own search_path, except insert_job, which qualifies all names instead. roles/*.sql grants the
-- functions to roles. A store without roles is accessible only to its owner.
--
--   producer_*   enqueue, for roles that may not write to queue.job; used automatically by the functions of 6_enqueue.sql and the bulk
--                statements
--   worker_*     create and drop day partitions, for roles that may not create tables
--   reader_*     read jobs without payload and output, for roles that may not read those columns
--
-- Entry points without a prefix serve all roles, and are defined in the files of their topics. Examples are insert_job, channel, notify,
-- status, job_states, wait, the operations on jobs, set_capacity, pause and resume.

-- Returns whether the caller may enqueue without an entry point.
create function queue.is_trusted() returns boolean
  language sql stable
  return pg_catalog.has_table_privilege('queue.job'::regclass, 'insert');

-- Function whose EXECUTE privilege permits a role to enqueue into every queue. Only the privilege is checked; the function is never
-- called. Other producers may enqueue only into the queues in queue.producer_queue.
create function queue.any_queue() returns boolean
  language sql immutable
  return true;

-- Returns whether any producer is restricted to a list of queues. The constant result costs nothing while no producer is restricted.
-- Adding the first restricted producer replaces the function (roles/some_queues.sql).
create function queue.limits_producers() returns boolean
  language sql immutable
  return false;

-- Queues into which a restricted producer may enqueue, by role.
create table queue.producer_queue (
  role   name  not null,
  queue  text  not null,
  constraint producer_queue_pkey primary key (role, queue),
  constraint producer_queue_is_a_name check (queue.is_name(queue))
);

-- Raises an error if the caller may not enqueue into the queue. All names in the body are schema-qualified, as in insert_job.
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

-- Enqueues a job with the default options, as queue.enqueue does.
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

-- Enqueues a job as queue.enqueue_with does. The job enters the queue that was checked, even if workers concurrently publish another
-- default queue for the job type.
create function queue.producer_enqueue_with(
  job_type text, payload jsonb, options jsonb, caller queue.caller default queue.called_by(), out id bigint, out outcome text
)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  input   jsonb := producer_enqueue_with.options;
  chosen  text;
begin
  if input ? 'system' and ((input -> 'system') - '{child_of,node_of,part_of}'::text[] = '{}') is not true then
    raise invalid_parameter_value using message = 'queue.enqueue: unknown option system';
  end if;
  if queue.limits_producers() then
    chosen := (queue.read_options(producer_enqueue_with.job_type, input)).queue;
    perform queue.check_queue(chosen, producer_enqueue_with.caller);
    input := input || jsonb_build_object('queue', chosen);
  end if;
  select e.id, e.outcome into producer_enqueue_with.id, producer_enqueue_with.outcome
  from queue.enqueue_with(producer_enqueue_with.job_type, producer_enqueue_with.payload, input) e;
end
$$;

-- Locks ordering keys as queue.lock_keys does. The function gives a producer no additional rights, because an enqueue under a key also
-- locks the key.
create function queue.producer_lock_keys(queues text[], keys text[], every boolean) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.lock_keys(producer_lock_keys.queues, producer_lock_keys.keys, producer_lock_keys.every);
end
$$;

-- Creates partitions as queue.add_days does, for at most 60 days ahead.
create function queue.worker_add_days(ahead integer) returns integer
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if worker_add_days.ahead between 0 and 60 is not true then
    raise invalid_parameter_value using message = format('queue.worker_add_days: ahead must be from 0 to 60 days, not %s', worker_add_days.ahead);
  end if;
  return queue.add_days(worker_add_days.ahead);
end
$$;

-- Drops the partitions of a day as queue.drop_day does. The default limits on surviving jobs apply, so other sessions are blocked only
-- briefly. Rejects a negative retention, so only past days are dropped.
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

-- Returns a page of jobs as described at queue.list. The query is planned for each call, regardless of the caller's settings, because a
-- query whose plan was cached while the partitions were empty could run for minutes. JIT is off, because compilation would take ten times
-- as long as the query itself.
--
-- Reads the jobs of the newest one or two days first, because planning a query over the partitions of a month takes longer than the
-- execution. Older partitions are opened only if the newest partitions do not fill the page.
create function queue.list_page(
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
  lowest  bigint := greatest(queue.day_before(least(queue.enqueued_at(list_page.before), now() - coalesce(list_page.older_than, '0'))), 0);
  found_  queue.listed[];
begin
  loop
    found_ := array(
      select p
      from queue.pick(in_state, in_queue, list_page.job_types, list_page.before, list_page.most, in_error, list_page.since, list_page.older_than,
        in_meta,
        list_page.looked, lowest) p
    );
    exit when lowest = 0 or found_[1].horizon > lowest or (select count(p.id) from unnest(found_) p) >= list_page.most;
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

-- Lists jobs with ids below `before`, newest first, each once with its state. A null filter matches every job. `error` is a text that the
-- error of a dead letter must contain. `meta` is an object that the metadata must contain. `since` is the maximum age and `older_than` the
-- minimum age. A finished job's age counts from its end, any other job's age from its enqueue. Payload and output are returned only if
-- `payload` is set.
--
-- The cost does not grow with the number of jobs, except for blocked and running jobs. With a filter, the function reads a limited number
-- of jobs that do not match: `looked` rows of done and of done_many, five times as many scheduled, parked or dead jobs, and half as many
-- running jobs. With a filter by metadata, the limit for scheduled, parked and dead jobs is also half of `looked`.
--
-- `horizon` is the lowest id down to which the list is complete. No older job is listed, and the next page continues from the horizon
-- (before => horizon). Null means that everything was read. A page without jobs consists of one row with the horizon.
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
  from queue.list_page(list.state, list.queue, list.job_types, list.before, list.most, list.error, list.since, list.older_than, list.payload,
    list.meta,
    list.looked) l;
end;

-- Lists jobs as queue.list does, but without payload and output.
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
    from queue.list_page(
      in_state, in_queue, reader_list.job_types, reader_list.before, reader_list.most, in_error, reader_list.since,
      reader_list.older_than, false, in_meta, reader_list.looked
    ) l;
end
$$;

-- Returns one job as queue.find does, but without payload and output.
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

-- All jobs in the store, each once with its state.
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

-- Returns all workers with a heartbeat row, and the number of jobs that each worker holds. If `alive` is false, the worker's heartbeat
-- has expired, and the jobs are about to be recovered.
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

-- Unfinished jobs and dead letters, which survive when the partition of their day is dropped.
create view queue.unfinished_job as
  select id from queue.ready
  union all select id from queue.scheduled
  union all select id from queue.parked
  union all select unnest(ids) from queue.lease
  union all select id from queue.dead
  union all select id from queue.blocked;

-- Returns up to `most` jobs of an ordering key, in the key's order: first the key's head, if any, and then the jobs blocked behind the
-- head. The head is running, waiting, or dead and blocking the key. Reads one index entry per job. SECURITY DEFINER, because readers have
-- no privileges on the tables of heads and of key hashes.
create function queue.key_queue(queue text, key text, most integer)
  returns table (seq bigint, id bigint)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  job_key  bigint := queue.key_id(key_queue.queue, key_queue.key);
begin
  return query
  select l.seq, l.id
  from (
    (select a.seq, a.id from queue.active_key a where a.key = job_key limit 1)
    union all
    (select b.seq, b.id from queue.blocked b where b.key = job_key order by b.seq limit key_queue.most)
  ) l
  order by l.seq
  limit key_queue.most;
end
$$;
