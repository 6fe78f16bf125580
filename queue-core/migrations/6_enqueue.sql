-- Enqueue entry point for every language: queue.enqueue(job_type, payload, options). The options are fields of a jsonb object, which the functions
-- in this file read and check. Plain jobs are passed on to queue.insert_job, jobs with an ordering key to queue.insert_in_line, and jobs with only
-- a fairness key to queue.insert_unkeyed.
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

-- Default options per job type, as published by the type's workers. An enqueue uses them for options that it omits. A type without default options
-- has no row. Enqueues in Rust specify all options and do not read this table.
create table queue.type_options (
  job_type      text     not null,
  queue         text     not null,
  priority      smallint not null,
  max_attempts  smallint not null,
  expires       interval,           -- maximum time between the earliest start and the start; null: unlimited
  constraint type_options_pkey primary key (job_type),
  constraint type_options_queue_is_a_name check (queue.is_name(queue)),
  constraint type_options_attempts_are_positive check (max_attempts >= 1)
);

-- Checked options of an enqueue.
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

-- Reads and checks the options of an enqueue. An unknown option, a wrong type or a value out of range raises 22023 with the option's name. JSON
-- null counts as omitted. For speed, the function tests the known names one by one instead of iterating over the given ones.
create function queue.read_options(job_type text, options jsonb) returns queue.options
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  said    queue.options := row('default', 100, 20, null, null, 'block', null, null, 'live', null, 'keep', null, null, 1, null);
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
      said.queue := typed.queue;
      said.priority := typed.priority;
      said.max_attempts := typed.max_attempts;
    end if;
  end if;
  if options ? 'queue' then
    said.queue := coalesce(options ->> 'queue', said.queue);
    if jsonb_typeof(options -> 'queue') not in ('string', 'null') or not queue.is_name(said.queue) then
      perform queue.refuse_option(options, 'queue', 'a name: 1 to 64 of A-Z a-z 0-9 _ . : -');
    end if;
  end if;
  if options ? 'priority' then
    whole := queue.read_whole(options -> 'priority', said.priority);
    if whole between -32768 and 32767 is not true then
      perform queue.refuse_option(options, 'priority', 'a whole number from -32768 to 32767');
    end if;
    said.priority := whole;
  end if;
  if options ? 'max_attempts' then
    whole := queue.read_whole(options -> 'max_attempts', said.max_attempts);
    if whole between 1 and 32767 is not true then
      perform queue.refuse_option(options, 'max_attempts', 'a whole number from 1 to 32767');
    end if;
    said.max_attempts := whole;
  end if;
  if options ->> 'run_at' is not null then
    said.run_at := queue.read_time(options, 'run_at',
      'a time, within the years 1970 to 9999, in the form 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00');
  end if;
  if options ->> 'after' is not null then
    if said.run_at is not null then
      raise invalid_parameter_value using message = 'queue.enqueue: the option run_at excludes the option after';
    end if;
    said.run_at := queue.read_time(options, 'after', 'an interval or a number of seconds, within the years 1970 to 9999');
  end if;
  if options ? 'key' then
    said.key := queue.read_text(options, 'key');
  end if;
  if options ? 'key_policy' then
    said.key_policy := coalesce(options ->> 'key_policy', 'block');
    if said.key_policy not in ('block', 'skip') then
      perform queue.refuse_option(options, 'key_policy', 'block or skip');
    elsif said.key is null and options ->> 'key_policy' is not null then
      raise invalid_parameter_value using message = 'queue.enqueue: the option key_policy needs the option key';
    end if;
  end if;
  if options ? 'fair' then
    said.fair := queue.read_text(options, 'fair');
  end if;
  if options ? 'unique_key' then
    said.unique_key := queue.read_text(options, 'unique_key');
  end if;
  if options ? 'unique_while' then
    said.unique_while := coalesce(options ->> 'unique_while', 'live');
    if said.unique_while not in ('live', 'queued', 'kept') then
      said.unique_while := 'until';
      said.unique_until := queue.read_time(options, 'unique_while',
        'live, queued, kept or an interval longer than zero that ends before the year 10000');
    end if;
  end if;
  if options ? 'on_conflict' then
    said.on_conflict := coalesce(options ->> 'on_conflict', 'keep');
    if said.on_conflict not in ('keep', 'replace', 'debounce') then
      perform queue.refuse_option(options, 'on_conflict', 'keep, replace or debounce');
    end if;
  end if;
  if said.unique_key is null and coalesce(options ->> 'unique_while', options ->> 'on_conflict') is not null then
    raise invalid_parameter_value using message = 'queue.enqueue: the options unique_while and on_conflict need the option unique_key';
  end if;
  if options ? 'version' then
    whole := queue.read_whole(options -> 'version', 1);
    if whole between 1 and 9999 is not true then
      perform queue.refuse_option(options, 'version', 'a whole number from 1 to 9999');
    end if;
    said.version := whole;
  end if;
  if options ->> 'meta' is not null then
    said.meta := queue.checked_meta(options -> 'meta');
  end if;
  if options ? 'system' then
    said.system := options -> 'system';
  end if;
  if options ?| '{expires_at,expires_in}' or typed.expires is not null then
    said.expires_at := queue.read_expiry(options, said.run_at, typed.expires);
  end if;
  return said;
end
$$;

-- Raises an error that names the invalid option.
create function queue.refuse_option(options jsonb, name text, needs text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise invalid_parameter_value using
    message = format('queue.enqueue: the option %s must be %s, not %s', name, needs,
      -- The value is omitted, because keys may identify persons and errors are logged.
      case when name in ('key', 'fair', 'unique_key') then 'of the type ' || jsonb_typeof(options -> name)
        else left((options -> name)::text, 100) end);
end
$$;

-- Returns a JSON number as an integer of at most five digits: `otherwise` for JSON null, and null if the value is anything else.
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
    perform queue.refuse_option(options, name, 'a text');
  end if;
  return options ->> name;
end
$$;

-- Returns the point in time that an option specifies. run_at and expires_at are RFC 3339 times, which do not depend on session settings; other
-- options are intervals from now. The result is within the range of `scheduled`, and an interval of unique_while ends in the future.
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
  perform queue.refuse_option(options, name, needs);
end
$$;

-- Rejects a time outside the range of the store's tables. Null means now. Called by all functions that take a run_at.
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

-- Returns whether the value is valid metadata of a job.
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

-- Enqueues one job in the caller's transaction and returns its id. If another job holds the uniqueness key, returns that job's id. Options:
--
--   queue, priority, max_attempts      default: as published by workers of the type, else 'default', 100 and 20
--   run_at | after                     a time, or an interval or number of seconds from now, measured by the database clock
--   expires_at | expires_in            the job expires unless it has started by this time, or within this interval after its earliest start
--   key, key_policy                    jobs of one ordering key run one at a time, in commit order; a dead letter blocks its key (block) or does
--                                      not block it (skip)
--   fair                               fairness key: the keys of one type and priority take turns, however many jobs a key has
--   unique_key, unique_while,          one job holds the key: until it is finished (live), until it is claimed (queued), until its history is
--   on_conflict                        pruned (kept), or for an interval; a conflicting enqueue keeps the job unchanged, replaces its payload,
--                                      or debounces it (postpones it to the new time)
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

-- Enqueues like queue.enqueue, and also returns the outcome: enqueued, kept (the job that holds the key is unchanged), replaced (that job has the
-- new payload) or debounced (that job runs at the new time, if the new time is later). A running job is always kept.
create function queue.enqueue_with(job_type text, payload jsonb, options jsonb default '{}', out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  said    queue.options;
  stored  text;
  taken   uuid;
begin
  if not queue.is_trusted() then
    select d.id, d.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.producer_enqueue_with(enqueue_with.job_type, enqueue_with.payload, enqueue_with.options) d;
    return;
  end if;
  said := queue.read_options(enqueue_with.job_type, enqueue_with.options);
  stored := queue.stored_type(enqueue_with.job_type, said.version);
  taken := queue.unique_hash(said.queue, enqueue_with.job_type, said.unique_key);
  if taken is not null then
    -- If the queue is full and no row of the key exists, the enqueue is rejected before anything is written for the key.
    if exists (select from queue.capacity c where c.queue = said.queue)
      and not exists (select from queue.unique_key u where u.hash = taken)
    then
      perform queue.look_capacity(said.queue, 1);
    end if;
    select t.id, t.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.take_key(taken, stored, enqueue_with.payload, said.run_at, said.on_conflict) t;
    if enqueue_with.id is not null then
      if outcome <> 'kept' then
        perform queue.set_expiry(enqueue_with.id, said.expires_at);
      end if;
      -- Wakes workers that skipped the entry while it was locked, or that do not know the entry's new time.
      perform queue.wake(said.queue);
      return;
    end if;
  end if;
  if said.expires_at is not null then
    said.system := queue.with_expiry(said.system, said.expires_at);
  end if;
  if said.key is not null and said.key_policy = 'skip' then
    said.system := coalesce(said.system, '{}') || '{"skips": true}';
  end if;
  if taken is not null then
    said.system := coalesce(said.system, '{}') || jsonb_build_object('unique', taken);
  end if;
  if said.system is not null and not queue.is_meta(said.system) then
    raise invalid_parameter_value using message = format('queue.enqueue: the flow name is too long: the attributes of a job take at most %s bytes',
      queue.meta_limit());
  end if;
  if said.key is null and said.fair is null and said.system is null then
    id := queue.insert_job(stored, enqueue_with.payload, said.queue, said.priority, said.max_attempts, said.run_at, said.meta);
  elsif said.key is null then
    perform queue.take_capacity(said.queue, 1);
    id := queue.insert_unkeyed(stored, enqueue_with.payload, said.queue, said.priority, said.max_attempts, said.run_at, said.fair, said.meta,
      said.system);
  else
    perform queue.take_capacity(said.queue, 1);
    id := queue.insert_in_line(stored, enqueue_with.payload, said.queue, said.priority, said.max_attempts, said.run_at,
      said.key, said.meta, said.system, queue.line_id(said.fair));
  end if;
  outcome := 'enqueued';
  if said.expires_at is not null then
    insert into queue.expiry (at, id) values (said.expires_at, enqueue_with.id);
  end if;
  if taken is not null then
    update queue.unique_key u set id = enqueue_with.id, held = said.unique_while, until = said.unique_until where u.hash = taken;
  end if;
end
$$;

-- Bulk enqueues through the entry points, and bulk enqueues of jobs with uniqueness keys.

-- Enqueues each job in the caller's transaction, unless another job holds the job's key. Returns ids and outcomes in input order. Equivalent to one
-- call of queue.enqueue_with per job.
--
-- Jobs without a uniqueness key are enqueued first, in input order. Jobs with a uniqueness key follow in the order of the keys' hashes, so that two
-- producers with the same keys do not deadlock.
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

-- Numbers that are valid JSON but exceed 64 bits. Enqueues (also in 1_jobs.sql, 3_keys.sql and 16_lines.sql) and signals reject such numbers,
-- because handlers could not read the payload.

-- Returns whether a JSON text may contain a number beyond 64 bits. Such a number has at least as many digits as the pattern requires.
create function queue.may_overflow(written text) returns boolean
  language sql immutable parallel safe
  return written operator(pg_catalog.~) '[0-9]{20}|-[0-9]{19}';

-- Returns whether a number, as printed by jsonb, fits into 64 bits as a signed integer, unsigned integer or float. jsonb prints a large float as an
-- integer with the float's digits and trailing zeros.
create function queue.fits_64_bits(number text) returns boolean
  language sql immutable parallel safe
  return case
    when number::numeric between -9223372036854775808 and 18446744073709551615 and pg_catalog.strpos(number, '.') = 0 then true
    when pg_catalog.strpos(number, '.') = 0 and pg_catalog.length(pg_catalog.rtrim(pg_catalog.ltrim(number, '-'), '0')) > 17 then false
    else number::numeric = 0 or pg_catalog.abs(number::numeric) between 5e-324 and 1.7976931348623157e308
  end;

-- Rejects a document with a number beyond 64 bits, which handlers in Rust and most other languages cannot read. The error contains the number's
-- location.
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
