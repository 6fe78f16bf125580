-- Schedules: jobs that the clock enqueues. Here they are made, changed and taken away; what becomes of their ticks is in 16_ticks.sql. The acts are
-- doors, as in 13_doors.sql.
--
--   schedule  written by whoever makes one (schedule, unschedule and the acts), by workers that declare one (elect_schedules), and by fire_ticks

create table queue.schedule (
  name              text        not null,
  job_type          text        not null,
  payload           jsonb       not null,
  options           jsonb       not null,                            -- of each enqueue, as queue.enqueue takes them
  cron              text,                                            -- an expression, which is the worker's to read; or
  every             interval,                                        -- every multiple of this since 1970
  tz                text        not null,
  missed            text        not null,
  grace             interval    not null,
  overlap           text        not null,
  jitter            interval    not null,
  supersede         boolean     not null,                            -- another payload cancels its jobs that are only tried again
  source            text        not null,                            -- static: declared by workers; dynamic: made by anybody
  definition        bigint      not null,                            -- a hash of all of these
  since             timestamptz not null default clock_timestamp(),  -- its ticks are those after this moment
  next_at           timestamptz,                                     -- the next of them, or null: a worker is to compute it
  skip_at           timestamptz,                                     -- the tick that is to be passed over
  tried_at          timestamptz,                                     -- when the next tick was first tried in vain; later, if nobody tried for long
  again_at          timestamptz,                                     -- and when last, if it was
  paused_at         timestamptz,
  undeclared_since  timestamptz,                                     -- no living worker has declared it since
  withdrawn_at      timestamptz,                                     -- so it has no ticks any more since
  error             text,                                            -- why it has no ticks: mend it and make it anew
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

-- Tells workers that schedules have changed.
create function queue.tell_schedules() returns void
  language sql volatile
  return queue.notify('wake', '!schedule');

-- The interval that an option is, given as such or in seconds; refused unless it is within this range.
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
  -- A comparison of intervals takes a year for 360 days; of seconds it has 365.25.
  if extract(epoch from meant) between extract(epoch from shortest) and extract(epoch from longest) is not true then
    raise invalid_parameter_value using
      message = format('queue.schedule: the option %s is an interval or a number of seconds, from %s to %s, not %s',
      name, shortest, longest, left((options -> name)::text, 100));
  end if;
  return meant;
end
$$;

-- What a schedule of this name would be, checked: an unknown option, or one of a wrong type or out of range, is 22023 and named.
create function queue.read_schedule(name text, job_type text, payload jsonb, options jsonb, source text) returns queue.schedule
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  said   queue.schedule;
  own    text[] := '{cron,every,tz,missed,grace,overlap,jitter,supersede}';
  known  text[] := own || '{queue,priority,max_attempts,expires_in,key,key_policy,fair,unique_key,unique_while,on_conflict,meta,version}';
  option text;
begin
  if not queue.is_name(read_schedule.name) then
    raise invalid_parameter_value using message = 'queue.schedule: the name has 1 to 64 of the characters A-Z a-z 0-9 _ . : -';
  elsif not queue.is_name(read_schedule.job_type) then
    raise invalid_parameter_value using message = 'queue.schedule: the job type has 1 to 64 of the characters A-Z a-z 0-9 _ . : -';
  elsif jsonb_typeof(read_schedule.options) is distinct from 'object' then
    raise invalid_parameter_value using message = 'queue.schedule: the options are a JSON object';
  elsif read_schedule.options - known <> '{}' then
    raise invalid_parameter_value using message = format('queue.schedule: there is no option %s; the options are %s',
      (select to_json(min(k.name)) from jsonb_object_keys(read_schedule.options - known) k (name)), array_to_string(known, ', '));
  end if;
  perform queue.check_payload(read_schedule.payload);
  perform queue.read_options(read_schedule.job_type, read_schedule.options - own);
  foreach option in array '{cron,tz,missed,overlap}'::text[] loop
    if jsonb_typeof(read_schedule.options -> option) not in ('string', 'null') then
      raise invalid_parameter_value using message = format('queue.schedule: the option %s is a text', option);
    end if;
  end loop;
  if jsonb_typeof(read_schedule.options -> 'supersede') not in ('boolean', 'null') then
    raise invalid_parameter_value using message = 'queue.schedule: the option supersede is true or false';
  end if;
  said.name := read_schedule.name;
  said.job_type := read_schedule.job_type;
  said.payload := read_schedule.payload;
  said.options := read_schedule.options - own;
  said.cron := read_schedule.options ->> 'cron';
  said.every := queue.read_span(read_schedule.options, 'every', null, '1 s', '365 days');
  said.tz := coalesce(read_schedule.options ->> 'tz', 'UTC');
  said.missed := coalesce(read_schedule.options ->> 'missed', 'coalesce');
  said.grace := queue.read_span(read_schedule.options, 'grace', '1 min', '1 s', '365 days');
  said.overlap := coalesce(read_schedule.options ->> 'overlap', 'skip');
  said.jitter := queue.read_span(read_schedule.options, 'jitter', '0', '0', '1 day');
  said.supersede := coalesce((read_schedule.options ->> 'supersede')::boolean, false);
  if (said.cron is null) = (said.every is null) then
    raise invalid_parameter_value using message = 'queue.schedule: one of the options cron and every is needed';
  elsif extract(year from said.every) <> 0 or extract(month from said.every) <> 0 then
    raise invalid_parameter_value using
      message = 'queue.schedule: the option every has no months, which differ in length; use cron, as in 0 0 1 * *';
  elsif octet_length(said.cron) > 256 or octet_length(said.tz) > 64 then
    raise invalid_parameter_value using message = 'queue.schedule: the option cron has at most 256 bytes, and tz at most 64';
  elsif said.missed !~ '^(coalesce|skip|catch_up[(][1-9][0-9]{0,2}[)])$' then
    raise invalid_parameter_value using
      message = format('queue.schedule: the option missed is coalesce, skip or catch_up(1) to catch_up(999), not %s',
      left(to_json(said.missed)::text, 100));
  elsif said.overlap not in ('skip', 'allow', 'queue') then
    raise invalid_parameter_value using message = format('queue.schedule: the option overlap is skip, allow or queue, not %s',
      left(to_json(said.overlap)::text, 100));
  end if;
  said.source := read_schedule.source;
  said.definition := queue.hash(jsonb_build_array(read_schedule.name, read_schedule.job_type, read_schedule.payload, read_schedule.options)::text);
  said.since := clock_timestamp();
  return said;
end
$$;

-- Makes a schedule, or changes the one of this name. One that is as it was stays as it is; a pause stays; its next tick stays unless the timing is
-- another. The schedules of workers are theirs.
create function queue.put_schedule(said queue.schedule) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  before queue.schedule;
  same   boolean;
begin
  insert into queue.schedule values (said.*) on conflict on constraint schedule_pkey do nothing;
  if not found then
    select s.* into before from queue.schedule s where s.name = said.name for update;
    if before.source <> said.source then
      raise object_not_in_prerequisite_state using message = format(case said.source
        when 'dynamic' then 'queue.schedule: the schedule %s is declared by workers: change it there, or give yours another name'
        else 'the schedule %s was made by queue.schedule: workers that declare one of its name do not change it' end, said.name);
    elsif before.definition = said.definition and before.error is null and before.undeclared_since is null then
      return;
    end if;
    same := (before.cron, before.every, before.tz) is not distinct from (said.cron, said.every, said.tz) and before.error is null;
    update queue.schedule s
    set job_type = said.job_type, payload = said.payload, options = said.options, cron = said.cron, every = said.every, tz = said.tz,
      missed = said.missed, grace = said.grace, overlap = said.overlap, jitter = said.jitter, supersede = said.supersede,
      definition = said.definition,
      since = case when same then s.since else said.since end,
      next_at = case when same then s.next_at end,
      skip_at = case when same then s.skip_at end,
      tried_at = null, undeclared_since = null, withdrawn_at = null, error = null
    where s.name = said.name;
    if said.supersede and (before.job_type, before.payload) is distinct from (said.job_type, said.payload) then
      perform queue.cancel_waiting_all(array(
        select l.id from queue.last_jobs(said.name) l join queue.scheduled s on s.id = l.id where s.attempts > 0));
    end if;
  end if;
  perform queue.tell_schedules();
end
$$;

-- Makes a schedule of this name, or changes it: at its ticks a job of this type with this payload is enqueued. Options:
--
--   cron | every    an expression of five fields (six with seconds first), or an interval: every multiple of it since 1970
--   tz              the zone of the expression; UTC
--   missed          what becomes of ticks that nobody was there for: coalesce, skip, catch_up(n); coalesce
--   grace           how late a tick may be before it counts as missed; 1 min
--   overlap         what becomes of a tick while a job of an earlier one is not over: skip, allow, queue; skip
--   jitter          its jobs are put off by up to this, each by another part of it; 0
--   supersede       made anew with another payload, its jobs that have failed and wait for another try are cancelled; false
--   and those of queue.enqueue, but for run_at, after and expires_at
--
-- Workers read the expression and compute the first tick. While none lives the schedule has no next_at; its ticks count from now on all the same.
-- An expression that they cannot read, or a zone that they do not know, becomes the schedule's error.
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

-- Takes a schedule away; its jobs stay. Returns whether there was one.
create function queue.unschedule(name text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queue.schedule s where s.name = unschedule.name and s.source = 'static' and s.withdrawn_at is null) then
    raise object_not_in_prerequisite_state using
      message = format('queue.unschedule: the schedule %s is declared by workers: pause it, or take it out there', unschedule.name);
  end if;
  delete from queue.schedule s where s.name = unschedule.name;
  return found;
end
$$;

-- No ticks until it is resumed.
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

-- Goes on with the next tick: those of the pause are over.
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
  perform queue.tell_schedules();
end
$$;

-- The next tick will have no job; returns it. Asked twice, it is the same tick.
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
      message = format('the next tick of the schedule %s is not known: a worker has to compute it; start one', skip_schedule.name);
  end if;
  return skipped;
end
$$;
