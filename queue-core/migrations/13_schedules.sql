-- Schedules, which enqueue jobs at fixed intervals or by cron expressions. The first half of the file creates, changes and removes
-- schedules. The second half fires their ticks. The operations are SECURITY DEFINER entry points (see 11_doors.sql).
--
--   schedule  written by users (schedule, unschedule and the other operations), by workers that declare a schedule (elect_schedules),
--             and by fire_ticks

create table queue.schedule (
  name              text        not null,
  job_type          text        not null,
  payload           jsonb       not null,
  options           jsonb       not null,                            -- options of each enqueue, as for queue.enqueue
  cron              text,                                            -- cron expression, evaluated by workers; null if `every` is set
  every             interval,                                        -- ticks at multiples of this interval since 1970; null if `cron` is set
  tz                text        not null,
  missed            text        not null,
  grace             interval    not null,
  overlap           text        not null,
  jitter            interval    not null,
  supersede         boolean     not null,                            -- whether a changed type or payload cancels jobs waiting for a retry
  source            text        not null,                            -- static: declared by workers; dynamic: created by users
  definition        bigint      not null,                            -- hash of the columns above
  since             timestamptz not null default clock_timestamp(),  -- time after which ticks count; a resume moves it
  next_at           timestamptz,                                     -- next tick; null until a worker computes it
  skip_at           timestamptz,                                     -- tick to skip
  tried_at          timestamptz,                                     -- first failed attempt to fire the next tick; moved later by an outage
  again_at          timestamptz,                                     -- last failed attempt, kept after a success
  paused_at         timestamptz,
  undeclared_since  timestamptz,                                     -- time since which no live worker has declared the schedule
  withdrawn_at      timestamptz,                                     -- time since which an undeclared schedule is withdrawn and has no ticks
  error             text,                                            -- reason why the schedule has no ticks; cleared by creating the schedule again
  constraint schedule_times_in_range check (
    least(since, next_at, skip_at, tried_at, again_at, paused_at, undeclared_since, withdrawn_at) >= '1970-01-01+00'
    and greatest(since, next_at, skip_at, tried_at, again_at, paused_at, undeclared_since, withdrawn_at) < '10000-01-01+00'
  ),
  constraint schedule_pkey primary key (name),
  constraint schedule_name_is_a_name check (queue.is_name(name)),
  constraint schedule_job_type_is_a_name check (queue.is_name(job_type)),
  constraint schedule_has_one_timing check ((cron is null) <> (every is null)),
  constraint schedule_source_is_known check (source in ('static', 'dynamic'))
);
create index schedule_by_tick on queue.schedule (coalesce(next_at, '-infinity'), name)
  where paused_at is null and withdrawn_at is null and error is null;

-- Notifies workers that schedules have changed.
create function queue.notify_schedules() returns void
  language sql volatile
  return queue.notify('wake', '!schedule');

-- Returns the value of an interval option, which is given as an interval or as a number of seconds. Raises an error if the value is
-- shorter than `shortest` or longer than `longest`.
create function queue.read_span(options jsonb, name text, otherwise interval, shortest interval, longest interval) returns interval
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  kind   text := jsonb_typeof(options -> name);
  meant  interval;
begin
  if options ->> name is null then
    return otherwise;
  end if;
  begin
    meant := case kind
      when 'string' then (options ->> name)::interval
      when 'number' then (options ->> name)::double precision * interval '1 second'
    end;
  exception when data_exception then
    meant := null;
  end;
  -- The intervals are compared in seconds, because PostgreSQL's interval comparison assumes a year of 360 days instead of 365.25.
  if extract(epoch from meant) between extract(epoch from shortest) and extract(epoch from longest) is not true then
    raise invalid_parameter_value using
      message = format('queue.schedule: the option %s must be an interval or a number of seconds, from %s to %s, not %s',
      name, shortest, longest, left((options -> name)::text, 100));
  end if;
  return meant;
end
$$;

-- Returns the checked definition of a schedule. Raises an error (22023) that names the option if an option is unknown, has a wrong type
-- or is out of range.
create function queue.read_schedule(name text, job_type text, payload jsonb, options jsonb, source text) returns queue.schedule
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  input  queue.schedule;
  own    text[] := '{cron,every,tz,missed,grace,overlap,jitter,supersede}';
  known  text[] := own || '{queue,priority,max_attempts,expires_in,key,key_policy,fair,unique_key,unique_while,on_conflict,meta,version}';
  option text;
begin
  if not queue.is_name(read_schedule.name) then
    raise invalid_parameter_value using message = 'queue.schedule: the name has 1 to 64 of the characters A-Z a-z 0-9 _ . : -';
  elsif not queue.is_name(read_schedule.job_type) then
    raise invalid_parameter_value using message = 'queue.schedule: the job type has 1 to 64 of the characters A-Z a-z 0-9 _ . : -';
  elsif jsonb_typeof(read_schedule.options) is distinct from 'object' then
    raise invalid_parameter_value using message = 'queue.schedule: the options must be a JSON object';
  elsif read_schedule.options - known <> '{}' then
    raise invalid_parameter_value using message = format('queue.schedule: unknown option %s; the options are %s',
      (select to_json(min(k.name)) from jsonb_object_keys(read_schedule.options - known) k (name)), array_to_string(known, ', '));
  end if;
  perform queue.check_payload(read_schedule.payload);
  perform queue.read_options(read_schedule.job_type, read_schedule.options - own);
  foreach option in array '{cron,tz,missed,overlap}'::text[] loop
    if jsonb_typeof(read_schedule.options -> option) not in ('string', 'null') then
      raise invalid_parameter_value using message = format('queue.schedule: the option %s must be a text', option);
    end if;
  end loop;
  if jsonb_typeof(read_schedule.options -> 'supersede') not in ('boolean', 'null') then
    raise invalid_parameter_value using message = 'queue.schedule: the option supersede must be true or false';
  end if;
  input.name := read_schedule.name;
  input.job_type := read_schedule.job_type;
  input.payload := read_schedule.payload;
  input.options := read_schedule.options - own;
  input.cron := read_schedule.options ->> 'cron';
  input.every := queue.read_span(read_schedule.options, 'every', null, '1 s', '365 days');
  input.tz := coalesce(read_schedule.options ->> 'tz', 'UTC');
  input.missed := coalesce(read_schedule.options ->> 'missed', 'coalesce');
  input.grace := queue.read_span(read_schedule.options, 'grace', '1 min', '1 s', '365 days');
  input.overlap := coalesce(read_schedule.options ->> 'overlap', 'skip');
  input.jitter := queue.read_span(read_schedule.options, 'jitter', '0', '0', '1 day');
  input.supersede := coalesce((read_schedule.options ->> 'supersede')::boolean, false);
  if (input.cron is null) = (input.every is null) then
    raise invalid_parameter_value using message = 'queue.schedule: one of the options cron and every is required';
  elsif extract(year from input.every) <> 0 or extract(month from input.every) <> 0 then
    raise invalid_parameter_value using
      message = 'queue.schedule: the option every cannot contain months, which differ in length; use cron, such as 0 0 1 * *';
  elsif octet_length(input.cron) > 256 or octet_length(input.tz) > 64 then
    raise invalid_parameter_value using message = 'queue.schedule: the option cron has at most 256 bytes, and tz at most 64';
  elsif input.missed !~ '^(coalesce|skip|catch_up[(][1-9][0-9]{0,2}[)])$' then
    raise invalid_parameter_value using
      message = format('queue.schedule: the option missed must be coalesce, skip or catch_up(1) to catch_up(999), not %s',
      left(to_json(input.missed)::text, 100));
  elsif input.overlap not in ('skip', 'allow', 'queue') then
    raise invalid_parameter_value using message = format('queue.schedule: the option overlap must be skip, allow or queue, not %s',
      left(to_json(input.overlap)::text, 100));
  end if;
  input.source := read_schedule.source;
  input.definition := queue.hash(jsonb_build_array(read_schedule.name, read_schedule.job_type, read_schedule.payload, read_schedule.options)::text);
  input.since := clock_timestamp();
  return input;
end
$$;

-- Creates a schedule, or changes the existing schedule with the same name. An identical definition changes nothing. A change keeps a
-- pause of the schedule, and keeps the next tick unless the timing changes. Raises an error if the existing schedule has another source:
-- users and workers cannot change each other's schedules.
create function queue.put_schedule(input queue.schedule) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  before queue.schedule;
  same   boolean;
begin
  insert into queue.schedule values (input.*) on conflict on constraint schedule_pkey do nothing;
  if not found then
    select s.* into before from queue.schedule s where s.name = input.name for update;
    if before.source <> input.source then
      raise object_not_in_prerequisite_state using message = format(case input.source
        when 'dynamic' then 'queue.schedule: the schedule %s is declared by workers: change it there, or give yours another name'
        else 'the schedule %s was created by queue.schedule: declarations of workers do not change it' end, input.name);
    elsif before.definition = input.definition and before.error is null and before.undeclared_since is null then
      return;
    end if;
    same := (before.cron, before.every, before.tz) is not distinct from (input.cron, input.every, input.tz) and before.error is null;
    update queue.schedule s
    set job_type = input.job_type, payload = input.payload, options = input.options, cron = input.cron, every = input.every, tz = input.tz,
      missed = input.missed, grace = input.grace, overlap = input.overlap, jitter = input.jitter, supersede = input.supersede,
      definition = input.definition,
      since = case when same then s.since else input.since end,
      next_at = case when same then s.next_at end,
      skip_at = case when same then s.skip_at end,
      tried_at = null, undeclared_since = null, withdrawn_at = null, error = null
    where s.name = input.name;
    if input.supersede and (before.job_type, before.payload) is distinct from (input.job_type, input.payload) then
      perform queue.cancel_waiting_all(array(
        select l.id from queue.last_jobs(input.name) l join queue.scheduled s on s.id = l.id where s.attempts > 0));
    end if;
  end if;
  perform queue.notify_schedules();
end
$$;

-- Creates the schedule `name`, or changes it. Each tick enqueues a job of type `job_type` with the given payload. Options:
--
--   cron | every    an expression with five fields (six with seconds first), or an interval whose multiples since 1970 are the ticks
--   tz              time zone of the expression; default UTC
--   missed          handling of ticks that passed while no worker was running: coalesce, skip, catch_up(n); default coalesce
--   grace           maximum delay of a tick, after which the tick counts as missed; default 1 min
--   overlap         handling of a tick while a job of an earlier tick is unfinished: skip, allow, queue; default skip
--   jitter          maximum pseudorandom delay of a job, derived from its tick; default 0
--   supersede       whether a changed job type or payload cancels jobs of the schedule that are waiting for a retry; default false
--   and the options of queue.enqueue, except run_at, after and expires_at
--
-- Workers evaluate the expression and compute the first tick. While no worker is alive, the schedule has no next_at, but its ticks count
-- from the time of the call. If workers cannot parse the expression or the time zone, the schedule's error reports the failure.
create function queue.schedule(name text, job_type text, payload jsonb, options jsonb) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.put_schedule(queue.read_schedule(schedule.name, schedule.job_type, schedule.payload, schedule.options, 'dynamic'));
end
$$;

create function queue.no_schedule(name text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise no_data_found using message = format('there is no schedule %s', left(to_json(no_schedule.name)::text, 100));
end
$$;

-- Removes a schedule and keeps its jobs. Returns whether the schedule existed.
create function queue.unschedule(name text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queue.schedule s where s.name = unschedule.name and s.source = 'static' and s.withdrawn_at is null) then
    raise object_not_in_prerequisite_state using
      message = format('queue.unschedule: the schedule %s is declared by workers: pause it, or remove it there', unschedule.name);
  end if;
  delete from queue.schedule s where s.name = unschedule.name;
  return found;
end
$$;

-- Stops the schedule's ticks until resume_schedule is called.
create function queue.pause_schedule(name text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.schedule s
  set paused_at = coalesce(s.paused_at, clock_timestamp())
  where s.name = pause_schedule.name;
  if not found then
    perform queue.no_schedule(pause_schedule.name);
  end if;
end
$$;

-- Resumes a schedule with the next tick. Drops ticks that passed during the pause.
create function queue.resume_schedule(name text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.schedule s
  set since = case when s.paused_at is null then s.since else clock_timestamp() end,
    next_at = case when s.paused_at is null then s.next_at end,
    tried_at = case when s.paused_at is null then s.tried_at end,
    paused_at = null
  where s.name = resume_schedule.name;
  if not found then
    perform queue.no_schedule(resume_schedule.name);
  end if;
  perform queue.notify_schedules();
end
$$;

-- Skips the schedule's next tick and returns the time of this tick. Repeated calls skip the same tick.
create function queue.skip_schedule(name text) returns timestamptz
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  skipped timestamptz;
begin
  update queue.schedule s
  set skip_at = s.next_at
  where s.name = skip_schedule.name
  returning s.skip_at into skipped;
  if not found then
    perform queue.no_schedule(skip_schedule.name);
  elsif skipped is null then
    raise object_not_in_prerequisite_state using
      message = format('the next tick of the schedule %s is unknown until a worker computes it; start a worker', skip_schedule.name);
  end if;
  return skipped;
end
$$;

-- Ticks of schedules. There is no leader: every worker computes the next ticks, sleeps until the first of them, and calls
-- queue.fire_ticks. This file does not evaluate cron expressions, because the caller passes the ticks. The ticks are applied only if
-- neither the schedule nor its next tick has changed since the worker computed them.
--
--   fire         one row for each tick (written by fire_ticks) and each manual start (run_schedule); pruned with the history
--   declaration  written by workers at startup (declare_schedules); worker.declares lists the declarations of live workers

-- Outcomes of ticks and manual starts, one row for each.
create table queue.fire (
  name      text        not null,
  tick      timestamptz not null,
  fired_at  timestamptz not null default clock_timestamp(),
  job       bigint,
  outcome   text        not null,  -- enqueued, kept, replaced, debounced, overlapped, skipped, missed, failed, run_now
  error     text,
  constraint fire_times_in_range check (least(tick, fired_at) >= '1970-01-01+00' and greatest(tick, fired_at) < '10000-01-01+00'),
  constraint fire_pkey primary key (name, tick)
);
create index fire_jobs on queue.fire (name, (outcome = 'run_now'), tick) where job is not null;
create index fire_by_time on queue.fire (fired_at);

-- Schedules declared by workers. For each name, the newest definition that a live worker declares is in force.
create table queue.declaration (
  name        text        not null,
  definition  bigint      not null,
  first_seen  timestamptz not null default clock_timestamp(),
  last_seen   timestamptz not null default clock_timestamp(),
  job_type    text        not null,
  payload     jsonb       not null,
  options     jsonb       not null,
  constraint declaration_times_in_range
    check (least(first_seen, last_seen) >= '1970-01-01+00' and greatest(first_seen, last_seen) < '10000-01-01+00'),
  constraint declaration_pkey primary key (name, definition)
);

-- Enqueues the schedule's job for `tick`, and returns the enqueue outcome.
create function queue.enqueue_tick(plan queue.schedule, tick timestamptz, out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  stamp  text := to_char(tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  spread bigint := (extract(epoch from plan.jitter) * 1000)::bigint;
  input  jsonb := plan.options || jsonb_build_object('system', jsonb_build_object('schedule', plan.name, 'tick', stamp));
begin
  if spread > 0 then
    -- The jitter is derived from the tick, so all workers compute the same delay.
    input := input || jsonb_build_object('run_at',
      tick + (queue.hash(plan.name || '/' || stamp) & 9223372036854775807) % spread * interval '1 ms');
  end if;
  if plan.overlap = 'queue' and plan.options ->> 'key' is null then
    input := input || jsonb_build_object('key', 'schedule/' || plan.name, 'key_policy', 'skip');
  end if;
  select e.id, e.outcome into enqueue_tick.id, enqueue_tick.outcome from queue.enqueue_with(plan.job_type, plan.payload, input) e;
end
$$;

-- Returns the last ten jobs from a schedule's ticks, and the last ten jobs started manually. The two limits are separate, so manual
-- starts do not hide the jobs from ticks.
create function queue.last_jobs(name text) returns table (id bigint, tick timestamptz)
  language sql stable
  set search_path = pg_catalog, pg_temp
begin atomic
  select f.job, f.tick
  from (values (false), (true)) h (by_hand)
  cross join lateral (
    select f.job, f.tick
    from queue.fire f
    where f.name = last_jobs.name and f.job is not null
      and (f.outcome = 'run_now') = h.by_hand
    order by f.tick desc
    limit 10
  ) f;
end;

-- Returns a description of the earliest unfinished job of an earlier tick or manual start, or null if there is none. Ignores waiting jobs
-- of a newer payload version: if the deployment of that version was rolled back, no worker runs these jobs.
create function queue.overlaps_with(name text, options jsonb) returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
begin atomic
  select format('job %s of %s is %s', l.id, to_char(l.tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    case when s.state = 'scheduled' and s.attempts > 0 then format('waiting for a retry after %s attempts', s.attempts) else s.state end)
  from queue.last_jobs(overlaps_with.name) l
  cross join lateral (
    select e.state, e.attempts, coalesce((options ->> 'version')::integer, 1) as known,
      (select max(queue.version_of(a.job_type)) from queue.job j join queue.lane a on a.lane = j.lane where j.id = l.id) as version
    from queue.entry_of(l.id) e
    offset 0
  ) s
  where s.state in ('ready', 'scheduled', 'blocked', 'parked', 'running')
    and (s.state = 'running' or s.version <= s.known)
  order by l.tick
  limit 1;
end;

-- Returns a job's schedule and the first tick that overlapped with the job. Returns an empty object if no tick overlapped.
create function queue.why_overlapped(id bigint, system jsonb) returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((
    select jsonb_build_object('schedule', system ->> 'schedule', 'overlapped_since', o.tick)
    from queue.last_jobs(system ->> 'schedule') l
    cross join lateral (
      select f.tick
      from queue.fire f
      where f.name = system ->> 'schedule' and f.tick > l.tick and f.outcome = 'overlapped'
      order by f.tick
      limit 1
    ) o
    where l.id = why_overlapped.id
    limit 1
  ), '{}');
end;

-- Fires the due ticks of a schedule if `definition` and `seen` still match the schedule's definition and next tick. Each tick enqueues a
-- job unless the tick is skipped, recorded as missed, or overlaps with an unfinished job. The schedule's next tick is then set to
-- `next_at`. If `next_at` is null, `error` is stored in the schedule.
--
-- Returns one row with the outcome of each tick; `fired` means that the tick had already been fired. Returns one row (`planned`) if
-- `ticks` is empty. Returns no row if the schedule no longer matches, or if another session has locked the schedule.
--
-- If a job cannot be enqueued, the error becomes the tick's outcome and is not raised, so the schedule continues with the next tick.
-- After an error that may be transient (a deadlock, a lock held by another session, a full disk), the attempt is instead rolled back, and
-- retried until one grace period after the first attempt. In this case, a last row (`raised`) reports the failure, and only the time of
-- the attempt is stored. The caller's statement does not fail, so it may process several schedules. Waits at most `patience` ms for a
-- lock. An outage of the server or of all workers uses up at most a tenth of the grace period.
--
-- A cancelled statement stores nothing. The caller therefore reports the cancellation in another call, with the error and the verb
-- `fail`. The cancellation counts as a failed attempt. After the last attempt, it becomes the tick's outcome.
create function queue.fire_ticks(
  name text, definition bigint, seen timestamptz, ticks timestamptz[], verb text, next_at timestamptz, error text, patience integer default 100
)
  returns table (tick timestamptz, outcome text, job bigint, why text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '100ms'
as $$
declare
  plan     queue.schedule;
  now      timestamptz := clock_timestamp();
  is_last  boolean;
  in_vain  boolean := fire_ticks.verb = 'fail';
  reason   text := case when fire_ticks.verb <> 'fail' then fire_ticks.error end;  -- reason for the missing next tick
begin
  perform set_config('lock_timeout', least(greatest(fire_ticks.patience, 1), 100) || 'ms', true);
  select s.* into plan
  from queue.schedule s
  where s.name = fire_ticks.name and s.definition = fire_ticks.definition and s.next_at is not distinct from fire_ticks.seen
    and s.paused_at is null and s.withdrawn_at is null and s.error is null
  for update skip locked;
  if not found or fire_ticks.seen > now then
    return;
  end if;
  -- Workers retry within a minute and within the grace period, and a statement takes at most ten seconds. If more time has passed since
  -- the last attempt, the server or all workers were unavailable. This outage counts as at most a tenth of the grace period.
  if now - plan.again_at > least(plan.grace, '1 min') + interval '15 s' then
    plan.tried_at := plan.tried_at + greatest(now - plan.again_at - plan.grace / 10, '0');
  end if;
  is_last := coalesce(plan.tried_at <= now - plan.grace, false);
  if is_last then
    perform set_config('lock_timeout', '100ms', true);
  end if;
  begin
    if in_vain and not is_last then
      raise exception 'in vain';
    end if;
    update queue.schedule s
    set next_at = fire_ticks.next_at,
      tried_at = null,
      error = case when fire_ticks.next_at is null then coalesce(reason, 'it has no further ticks') end
    where s.name = fire_ticks.name;
    foreach tick in array fire_ticks.ticks loop
      job := null;
      why := null;
      outcome := case
        -- The same tick may occur again if the clock was set back.
        when exists (select from queue.fire f where f.name = fire_ticks.name and f.tick = fire_ticks.tick) then 'fired'
        when fire_ticks.tick = plan.skip_at then 'skipped'
        when fire_ticks.verb = 'miss' then 'missed'
      end;
      if outcome is null and plan.overlap = 'skip' then
        why := queue.overlaps_with(fire_ticks.name, plan.options);
        outcome := case when why is not null then 'overlapped' end;
      end if;
      if outcome is null and in_vain then
        outcome := 'failed';
        why := fire_ticks.error;
      elsif outcome is null then
        begin
          select e.id, e.outcome into fire_ticks.job, fire_ticks.outcome from queue.enqueue_tick(plan, tick) e;
        exception when others then
          if not is_last and sqlstate ~ '^(40|53|55P03|57|58|XX)' then
            raise;
          end if;
          if sqlstate = '55P03' then
            perform set_config('lock_timeout', '1ms', true);
          end if;
          outcome := 'failed';
          why := left(sqlerrm, 1000) || ' (' || sqlstate || ')';
        end;
      end if;
      insert into queue.fire (name, tick, job, outcome, error)
      values (fire_ticks.name, fire_ticks.tick, fire_ticks.job, fire_ticks.outcome, fire_ticks.why)
      on conflict do nothing;
      return next;
    end loop;
  exception when others then
    why := case when in_vain then fire_ticks.error else left(sqlerrm, 1000) || ' (' || sqlstate || ')' end;
    begin
      update queue.schedule s
      set tried_at = coalesce(plan.tried_at, now),
        again_at = now
      where s.name = fire_ticks.name;
    exception when others then
      null;
    end;
    return query select fire_ticks.seen, 'raised', null::bigint, fire_ticks.why;
    return;
  end;
  if cardinality(fire_ticks.ticks) = 0 then
    return query select fire_ticks.next_at, 'planned', null::bigint, null::text;
  end if;
end
$$;

-- Enqueues a schedule's job immediately, and returns the job's id. Ignores ticks, pause and overlap.
create function queue.run_schedule(name text) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  plan   queue.schedule;
  moment timestamptz := clock_timestamp();
  made   bigint;
begin
  select s.* into plan from queue.schedule s where s.name = run_schedule.name;
  if not found then
    perform queue.no_schedule(run_schedule.name);
  end if;
  plan.jitter := '0';
  select e.id into made from queue.enqueue_tick(plan, moment) e;
  insert into queue.fire (name, tick, job, outcome) values (run_schedule.name, moment, made, 'run_now') on conflict do nothing;
  return made;
end
$$;

-- Records the schedules that a worker declares. Payloads and options are JSON texts. Returns the rejected schedules, and the schedules
-- that the worker must declare again, for example because another session has locked them. A later call replaces the worker's
-- declarations.
create function queue.declare_schedules(worker uuid, names text[], job_types text[], payloads text[], options text[])
  returns table (name text, became text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '1s'
as $$
declare
  input    queue.schedule;
  mine     bigint[] := '{}';
begin
  for place in 1 .. cardinality(names) loop
    begin
      input := queue.read_schedule(names[place], job_types[place], payloads[place]::jsonb, options[place]::jsonb, 'static');
      mine := mine || input.definition;
      insert into queue.declaration as d (name, definition, job_type, payload, options)
      values (input.name, input.definition, input.job_type, input.payload, options[place]::jsonb)
      on conflict on constraint declaration_pkey do update set last_seen = clock_timestamp();
    exception when others then
      name := names[place];
      became := case when sqlstate ~ '^2[23]' then 'refused: ' else 'held up: ' end || left(sqlerrm, 1000);
      return next;
      perform set_config('lock_timeout', '10ms', true);
    end;
  end loop;
  update queue.worker w
  set declares = mine
  where w.id = declare_schedules.worker;
end
$$;

-- Puts the declarations of live workers in force: for each name, the definition with the latest `first_seen`. Withdraws a schedule once
-- no live worker has declared it for the longest heartbeat validity (`ttl`) of the live workers. Live workers call the function
-- periodically. Returns one row for each affected schedule, with the outcome (in force, refused or withdrawn).
create function queue.elect_schedules() returns table (name text, became text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '1s'
as $$
declare
  won     record;
  longest interval;
begin
  select max(w.ttl) into longest from queue.worker w where w.expires_at > now();
  for won in
    select distinct on (d.name) d.name, d.definition, d.job_type, d.payload, d.options, d.last_seen, s.source, s.undeclared_since,
      s.definition as now_in_force, s.error
    from queue.declaration d
    left join queue.schedule s on s.name = d.name
    where exists (select from queue.worker w where w.expires_at > now() and d.definition = any (w.declares))
    order by d.name, d.first_seen desc, d.definition
  loop
    name := won.name;
    became := null;
    if won.last_seen < now() - interval '1 hour' then
      begin
        update queue.declaration d set last_seen = now() where d.name = won.name and d.definition = won.definition;
      exception when lock_not_available then
        perform set_config('lock_timeout', '10ms', true);
      end;
    end if;
    continue when won.source = 'static' and won.now_in_force = won.definition and won.undeclared_since is null and won.error is null;
    begin
      if won.now_in_force is not null then
        -- If another session has changed the schedule since the query, this election skips the schedule. The other session may have seen
        -- newer declarations.
        perform from queue.schedule s where s.name = won.name and s.definition = won.now_in_force for update;
        continue when not found;
      end if;
      perform queue.put_schedule(queue.read_schedule(won.name, won.job_type, won.payload, won.options, 'static'));
      became := 'in force';
    exception when others then
      became := 'refused: ' || left(sqlerrm, 1000);
      perform set_config('lock_timeout', '10ms', true);
    end;
    return next;
  end loop;
  return query
  with undeclared as materialized (
    select s.name, s.undeclared_since
    from queue.schedule s
    where s.source = 'static' and s.withdrawn_at is null
      and longest is not null
      and not exists (
        select from queue.declaration d
        join queue.worker w on d.definition = any (w.declares)
        where d.name = s.name and w.expires_at > now()
      )
    for update skip locked
  ), changed as (
    update queue.schedule s
    set undeclared_since = coalesce(u.undeclared_since, now()),
      withdrawn_at = case when u.undeclared_since < now() - longest then now() end
    from undeclared u
    where s.name = u.name
    returning s.name, s.withdrawn_at
  )
  select c.name, 'withdrawn' from changed c where c.withdrawn_at is not null;
end
$$;
