-- Enqueue entry point for every language: queue.enqueue(job_type, payload, options). The options are fields of a jsonb object, which the
-- functions in this file read and check. queue.insert_keyed enqueues jobs with an ordering key. Jobs without an ordering key, but with
-- a fairness key or attributes, are enqueued by queue.insert_unkeyed. queue.insert_job enqueues all other jobs.
--
--   type_options   written by workers at startup (publish_types), read by enqueues that omit one of the options in the table

-- Returns the maximum payload size in bytes, measured as text. Replace this function to change the limit for the store.
create function queue.payload_limit() returns integer
  language sql immutable parallel safe
  return 262144;

-- Returns the maximum size of a job's metadata in bytes, measured as text.
create function queue.meta_limit() returns integer
  language sql immutable parallel safe
  return 4096;

-- Default options per job type, as published by the type's workers. An enqueue uses the defaults for omitted options. A type without
-- default options has no row. Enqueues in Rust specify all options and do not read this table.
create table queue.type_options (
  job_type      text     not null,
  queue         text     not null,
  priority      smallint not null,
  max_attempts  smallint not null,
  expires       interval,           -- period from the earliest start to the start deadline; null: no deadline
  constraint type_options_pkey primary key (job_type),
  constraint type_options_queue_is_a_name check (queue.is_name(queue)),
  constraint type_options_attempts_are_positive check (max_attempts >= 1)
);

-- Validated options of an enqueue.
create type queue.options as (
  queue         text,
  priority      smallint,
  max_attempts  smallint,
  run_at        timestamptz,  -- earliest start; null: now
  key           text,         -- ordering key; null: none
  key_policy    text,
  fair          text,         -- fairness key; null: none
  unique_key    text,         -- uniqueness key; null: none
  unique_while  text,         -- how long the uniqueness key is held: live, queued, kept or until
  unique_until  timestamptz,  -- end of the hold, for `until`
  on_conflict   text,
  meta          jsonb,
  system        jsonb,        -- attributes set by spawn and enqueue_flow, see queue.job
  version       smallint,     -- payload version
  expires_at    timestamptz   -- start deadline; null: none
);

-- Reads and checks the options of an enqueue. Raises an error (22023) that names the option if an option is unknown, has a wrong type or
-- is out of range. JSON null counts as omitted. For speed, the function tests each known name instead of iterating over the given names.
create function queue.read_options(job_type text, options jsonb) returns queue.options
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  input   queue.options := row('default', 100, 20, null, null, 'block', null, null, 'live', null, 'keep', null, null, 1, null);
  typed   queue.type_options;
  whole   integer; -- whole number to be checked against its range, or null
  known   text[] :=
    '{queue,priority,max_attempts,run_at,after,expires_at,expires_in,key,key_policy,fair,unique_key,unique_while,on_conflict,meta,version}';
begin
  if jsonb_typeof(options) is distinct from 'object' then
    raise invalid_parameter_value using message = 'queue.enqueue: the options must be a JSON object';
  elsif read_options.job_type like '%@%' then
    raise invalid_parameter_value using message = 'queue.enqueue: the version of a job type is set with the option version, not in its name';
  elsif options - known - 'system' <> '{}' then
    raise invalid_parameter_value using message = format('queue.enqueue: unknown option %s; the options are %s',
      (select to_json(min(k.name)) from jsonb_object_keys(options - known - 'system') k (name)), array_to_string(known, ', '));
  end if;
  if options ->> 'queue' is null or options ->> 'priority' is null or options ->> 'max_attempts' is null then
    select p.* into typed from queue.type_options p where p.job_type = read_options.job_type;
    if found then
      input.queue := typed.queue;
      input.priority := typed.priority;
      input.max_attempts := typed.max_attempts;
    end if;
  end if;
  if options ? 'queue' then
    input.queue := coalesce(options ->> 'queue', input.queue);
    if jsonb_typeof(options -> 'queue') not in ('string', 'null') or not queue.is_name(input.queue) then
      perform queue.reject_option(options, 'queue', 'a name: 1 to 64 of A-Z a-z 0-9 _ . : -');
    end if;
  end if;
  if options ? 'priority' then
    whole := queue.read_whole(options -> 'priority', input.priority);
    if whole between -32768 and 32767 is not true then
      perform queue.reject_option(options, 'priority', 'a whole number from -32768 to 32767');
    end if;
    input.priority := whole;
  end if;
  if options ? 'max_attempts' then
    whole := queue.read_whole(options -> 'max_attempts', input.max_attempts);
    if whole between 1 and 32767 is not true then
      perform queue.reject_option(options, 'max_attempts', 'a whole number from 1 to 32767');
    end if;
    input.max_attempts := whole;
  end if;
  if options ->> 'run_at' is not null then
    input.run_at := queue.read_time(options, 'run_at',
      'a time, within the years 1970 to 9999, in the form 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00');
  end if;
  if options ->> 'after' is not null then
    if input.run_at is not null then
      raise invalid_parameter_value using message = 'queue.enqueue: the option run_at excludes the option after';
    end if;
    input.run_at := queue.read_time(options, 'after', 'an interval or a number of seconds, within the years 1970 to 9999');
  end if;
  if options ? 'key' then
    input.key := queue.read_text(options, 'key');
  end if;
  if options ? 'key_policy' then
    input.key_policy := coalesce(options ->> 'key_policy', 'block');
    if input.key_policy not in ('block', 'skip') then
      perform queue.reject_option(options, 'key_policy', 'block or skip');
    elsif input.key is null and options ->> 'key_policy' is not null then
      raise invalid_parameter_value using message = 'queue.enqueue: the option key_policy needs the option key';
    end if;
  end if;
  if options ? 'fair' then
    input.fair := queue.read_text(options, 'fair');
  end if;
  if options ? 'unique_key' then
    input.unique_key := queue.read_text(options, 'unique_key');
  end if;
  if options ? 'unique_while' then
    input.unique_while := coalesce(options ->> 'unique_while', 'live');
    if input.unique_while not in ('live', 'queued', 'kept') then
      input.unique_while := 'until';
      input.unique_until := queue.read_time(options, 'unique_while',
        'live, queued, kept or an interval longer than zero that ends before the year 10000');
    end if;
  end if;
  if options ? 'on_conflict' then
    input.on_conflict := coalesce(options ->> 'on_conflict', 'keep');
    if input.on_conflict not in ('keep', 'replace', 'debounce') then
      perform queue.reject_option(options, 'on_conflict', 'keep, replace or debounce');
    end if;
  end if;
  if input.unique_key is null and coalesce(options ->> 'unique_while', options ->> 'on_conflict') is not null then
    raise invalid_parameter_value using message = 'queue.enqueue: the options unique_while and on_conflict need the option unique_key';
  end if;
  if options ? 'version' then
    whole := queue.read_whole(options -> 'version', 1);
    if whole between 1 and 9999 is not true then
      perform queue.reject_option(options, 'version', 'a whole number from 1 to 9999');
    end if;
    input.version := whole;
  end if;
  if options ->> 'meta' is not null then
    input.meta := queue.checked_meta(options -> 'meta');
  end if;
  if options ? 'system' then
    input.system := options -> 'system';
  end if;
  if options ?| '{expires_at,expires_in}' or typed.expires is not null then
    input.expires_at := queue.read_expiry(options, input.run_at, typed.expires);
  end if;
  return input;
end
$$;

-- Raises an error that names the invalid option.
create function queue.reject_option(options jsonb, name text, needs text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise invalid_parameter_value using
    message = format('queue.enqueue: the option %s must be %s, not %s', name, needs,
      -- The error omits the value, because keys may identify persons and errors are logged.
      case when name in ('key', 'fair', 'unique_key') then 'of the type ' || jsonb_typeof(options -> name)
        else left((options -> name)::text, 100) end);
end
$$;

-- Returns a JSON number as an integer if it is a whole number of at most five digits, or `otherwise` for JSON null. Returns null for any
-- other value.
create function queue.read_whole(value jsonb, otherwise integer) returns integer
  language sql immutable parallel safe
  return case
    when pg_catalog.jsonb_typeof(value) = 'null' then otherwise
    when pg_catalog.jsonb_typeof(value) = 'number' and (value #>> '{}') ~ '^-?[0-9]{1,5}$' then (value #>> '{}')::integer
  end;

-- Returns an option as text, or null if the option is omitted.
create function queue.read_text(options jsonb, name text) returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(options -> name) not in ('string', 'null') then
    perform queue.reject_option(options, name, 'a text');
  end if;
  return options ->> name;
end
$$;

-- Returns the time that an option specifies. run_at and expires_at are RFC 3339 times, which do not depend on session settings. All other
-- time options are intervals from now. Raises an error if the time is outside the range of scheduled.run_at, or if an interval of
-- unique_while does not end in the future.
create function queue.read_time(options jsonb, name text, needs text) returns timestamptz
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  kind  text := jsonb_typeof(options -> name);
  word  text := options ->> name;
  moment timestamptz := clock_timestamp();
  meant  timestamptz;
begin
  begin
    meant := case
      when name in ('run_at', 'expires_at') then
        case when word ~* '^[0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$' then word::timestamptz end
      when kind = 'string' then moment + word::interval
      when kind = 'number' and name = 'after' then moment + word::double precision * interval '1 second'
    end;
  exception when data_exception then
    meant := null;
  end;
  if meant >= '1970-01-01+00' and meant < '10000-01-01+00' and (name <> 'unique_while' or meant > moment) then
    return meant;
  end if;
  perform queue.reject_option(options, name, needs);
end
$$;

-- Raises an error if `run_at` is outside the range of the store's tables. Null means now.
create function queue.check_run_at(run_at timestamptz) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if run_at < '1970-01-01+00' or run_at >= '10000-01-01+00' then
    raise invalid_parameter_value using message = format('queue: run_at must be a time within the years 1970 to 9999, not %s', run_at);
  end if;
end
$$;

-- Returns whether the value is valid job metadata: a JSON object within the size limit.
create function queue.is_meta(meta jsonb) returns boolean
  language sql immutable parallel safe
  return pg_catalog.jsonb_typeof(meta) = 'object' and pg_catalog.octet_length(meta::text) <= queue.meta_limit();

-- Returns the metadata if it is valid, and otherwise raises an error.
create function queue.checked_meta(meta jsonb) returns jsonb
  language plpgsql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not queue.is_meta(meta) then
    raise invalid_parameter_value using
      message = format('queue.enqueue: the option meta must be an object of at most %s bytes, not of the type %s with %s bytes',
        queue.meta_limit(), jsonb_typeof(meta), octet_length(meta::text));
  end if;
  perform queue.check_numbers(checked_meta.meta);
  return meta;
end
$$;

create function queue.check_payload(payload jsonb) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if payload is null then
    raise null_value_not_allowed using message = 'queue.enqueue: the payload may not be null';
  elsif octet_length(payload::text) > queue.payload_limit() then
    raise check_violation using constraint = 'job_payload_fits',
      message = format('queue.enqueue: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        octet_length(payload::text), queue.payload_limit());
  end if;
  perform queue.check_numbers(check_payload.payload);
end
$$;

-- Enqueues one job in the caller's transaction and returns its id. If another job holds the uniqueness key, returns that job's id.
-- Options:
--
--   queue, priority, max_attempts      default: as published by workers of the type, else 'default', 100 and 20
--   run_at | after                     a time, or an interval or number of seconds from now, measured by the database clock
--   expires_at | expires_in            the job expires unless it has started by this time, or within this interval after its earliest start
--   key, key_policy                    jobs of one ordering key run one at a time, in commit order; a dead letter blocks its key (block)
--                                      or does not block it (skip)
--   fair                               fairness key: the keys of one type and priority take turns, regardless of the number of jobs per key
--   unique_key, unique_while,          one job holds the key: until it is finished (live), until it is claimed (queued), until its history
--   on_conflict                        is pruned (kept), or for an interval; a conflicting enqueue keeps the job unchanged, replaces its
--                                      payload, or debounces it (postpones it to the new time)
--   meta                               small object stored with the job, readable by the handler and usable in filters
--   version                            payload version, default 1; only workers that support the version run the job
create function queue.enqueue(job_type text, payload jsonb, options jsonb default '{}') returns bigint
  language plpgsql volatile
as $$
declare
  typed  queue.type_options;
begin
  if options operator(pg_catalog.=) '{}'::pg_catalog.jsonb then
    if not queue.is_trusted() then
      return queue.producer_enqueue(enqueue.job_type, enqueue.payload);
    end if;
    select p.* into typed from queue.type_options p where p.job_type operator(pg_catalog.=) enqueue.job_type;
    if not found and pg_catalog.strpos(enqueue.job_type, '@') operator(pg_catalog.=) 0 then
      return queue.insert_job(enqueue.job_type, enqueue.payload);
    elsif found and typed.expires is null then
      return queue.insert_job(enqueue.job_type, enqueue.payload, typed.queue, typed.priority, typed.max_attempts);
    end if;
  end if;
  return (select e.id from queue.enqueue_with(enqueue.job_type, enqueue.payload, enqueue.options) e);
end
$$;

-- Enqueues a job as queue.enqueue does, and also returns the outcome. `enqueued` means that a new job exists. All other outcomes describe
-- the job that holds the uniqueness key: `kept` (left unchanged), `replaced` (given the new payload) or `debounced` (postponed to the new
-- time, if that time is later). A running or dead job is always kept.
create function queue.enqueue_with(job_type text, payload jsonb, options jsonb default '{}', out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  input   queue.options;
  stored  text;
  taken   uuid;
begin
  if not queue.is_trusted() then
    select d.id, d.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.producer_enqueue_with(enqueue_with.job_type, enqueue_with.payload, enqueue_with.options) d;
    return;
  end if;
  input := queue.read_options(enqueue_with.job_type, enqueue_with.options);
  stored := queue.stored_type(enqueue_with.job_type, input.version);
  taken := queue.unique_hash(input.queue, enqueue_with.job_type, input.unique_key);
  if taken is not null then
    -- If the queue is full and the uniqueness key has no row, the enqueue is rejected before a row is written for the key.
    if exists (select from queue.capacity c where c.queue = input.queue)
      and not exists (select from queue.unique_key u where u.hash = taken)
    then
      perform queue.check_capacity(input.queue, 1);
    end if;
    select t.id, t.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.take_key(taken, stored, enqueue_with.payload, input.run_at, input.on_conflict) t;
    if enqueue_with.id is not null then
      if outcome <> 'kept' then
        perform queue.set_expiry(enqueue_with.id, input.expires_at);
      end if;
      -- Wakes workers that skipped the entry while it was locked, or that do not know the entry's new time.
      perform queue.wake(input.queue);
      return;
    end if;
  end if;
  if input.expires_at is not null then
    input.system := queue.with_expiry(input.system, input.expires_at);
  end if;
  if input.key is not null and input.key_policy = 'skip' then
    input.system := coalesce(input.system, '{}') || '{"skips": true}';
  end if;
  if taken is not null then
    input.system := coalesce(input.system, '{}') || jsonb_build_object('unique', taken)
      || case when input.unique_while = 'live' then '{}' else jsonb_build_object('unique_while', input.unique_while) end;
  end if;
  if input.system is not null and not queue.is_meta(input.system) then
    raise invalid_parameter_value using message = format('queue.enqueue: the flow name is too long: the attributes of a job take at most %s bytes',
      queue.meta_limit());
  end if;
  if input.key is null and input.fair is null and input.system is null then
    id := queue.insert_job(stored, enqueue_with.payload, input.queue, input.priority, input.max_attempts, input.run_at, input.meta);
  elsif input.key is null then
    perform queue.take_capacity(input.queue, 1);
    id := queue.insert_unkeyed(stored, enqueue_with.payload, input.queue, input.priority, input.max_attempts, input.run_at, input.fair, input.meta,
      input.system);
  else
    perform queue.take_capacity(input.queue, 1);
    id := queue.insert_keyed(stored, enqueue_with.payload, input.queue, input.priority, input.max_attempts, input.run_at,
      input.key, input.meta, input.system, queue.fair_id_of(input.fair));
  end if;
  outcome := 'enqueued';
  if input.expires_at is not null then
    insert into queue.expiry (at, id) values (input.expires_at, enqueue_with.id);
  end if;
  if taken is not null then
    update queue.unique_key u set id = enqueue_with.id, held = input.unique_while, until = input.unique_until where u.hash = taken;
  end if;
end
$$;

-- Bulk enqueues for callers that use the entry points, and for jobs with uniqueness keys.

-- Enqueues each job in the caller's transaction, unless another job holds the job's uniqueness key. Returns ids and outcomes in input
-- order. Equivalent to one call of queue.enqueue_with per job.
--
-- Jobs without a uniqueness key are enqueued first, in input order. Jobs with a uniqueness key follow in the order of the keys' hashes,
-- so two producers with the same keys do not deadlock.
create function queue.enqueue_each(job_types text[], payloads jsonb[], options jsonb[]) returns table (id bigint, outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query
  with given as materialized (
    select g.*
    from rows from (unnest(enqueue_each.job_types), unnest(enqueue_each.payloads), unnest(enqueue_each.options))
      with ordinality g (job_type, payload, options, place)
    order by queue.unique_hash(coalesce(g.options ->> 'queue', 'default'), g.job_type, g.options ->> 'unique_key') nulls first, g.place
  )
  select e.id, e.outcome
  from given g
  cross join lateral queue.enqueue_with(g.job_type, g.payload, g.options) e
  order by g.place;
end
$$;

-- Checks for numbers that are valid JSON but exceed 64 bits. Enqueues (see also 1_jobs.sql, 3_keys.sql and 16_fair_queues.sql) and signals
-- reject these numbers, because handlers could not read the payload.

-- Returns whether a JSON text may contain a number beyond 64 bits. Every such number has at least as many digits as the pattern below
-- requires.
create function queue.may_overflow(written text) returns boolean
  language sql immutable parallel safe
  return written operator(pg_catalog.~) '[0-9]{20}|-[0-9]{19}';

-- Returns whether a number in jsonb's text format fits into 64 bits as a signed integer, unsigned integer or float. jsonb prints a large
-- float as an integer with the float's digits and trailing zeros.
create function queue.fits_64_bits(number text) returns boolean
  language sql immutable parallel safe
  return case
    when number::numeric between -9223372036854775808 and 18446744073709551615 and pg_catalog.strpos(number, '.') = 0 then true
    when pg_catalog.strpos(number, '.') = 0 and pg_catalog.length(pg_catalog.rtrim(pg_catalog.ltrim(number, '-'), '0')) > 17 then false
    else number::numeric = 0 or pg_catalog.abs(number::numeric) between 5e-324 and 1.7976931348623157e308
  end;

-- Raises an error if the document contains a number beyond 64 bits, which handlers in Rust and most other languages cannot read. The
-- error contains the number's location.
create function queue.check_numbers(document jsonb) returns void
  language plpgsql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
declare
  beyond  text;
begin
  if not queue.may_overflow(document::text) then
    return;
  end if;
  with recursive part (place, value) as (
    select '$', check_numbers.document
    union all
    select p.place || c.step, c.value
    from part p
    cross join lateral (
      select '.' || o.key as step, o.value
      from jsonb_each(case jsonb_typeof(p.value) when 'object' then p.value end) o
      union all
      select format('[%s]', a.nth - 1), a.value
      from jsonb_array_elements(case jsonb_typeof(p.value) when 'array' then p.value end) with ordinality a (value, nth)
    ) c
  )
  select p.place into beyond
  from part p
  where jsonb_typeof(p.value) = 'number' and not queue.fits_64_bits(p.value #>> '{}')
  limit 1;
  if beyond is not null then
    raise invalid_parameter_value using
      message = format('queue.enqueue: the number at %s is beyond 64 bits; store it as a string', left(beyond, 200));
  end if;
end
$$;
