-- The enqueue, for every language: queue.enqueue(job_type, payload, options). Options are named in a jsonb object; this file is where they are
-- read and checked. Plain jobs go on to queue.insert_job, jobs with an ordering key to queue.insert_in_line, those with a fair key alone to
-- queue.insert_unkeyed.
--
--   type_options   written by workers when they start (publish_types), read by enqueues that leave out one of these options

-- The most bytes of a payload's text. Replace this function to change it for the store.
create function queue.payload_limit() returns integer
  language sql immutable parallel safe
  return 262144;

-- The most bytes of a job's metadata, as text.
create function queue.meta_limit() returns integer
  language sql immutable parallel safe
  return 4096;

-- Where the jobs of a type go, and how often they are tried, if their enqueue does not say so: what the type's workers have. A type that says
-- nothing of it has no row. Enqueues in Rust say all of it, and read nothing here.
create table queue.type_options (
  job_type      text     not null,
  queue         text     not null,
  priority      smallint not null,
  max_attempts  smallint not null,
  expires       interval,           -- how long after it may run first a job of it may begin; null: at any time
  constraint type_options_pkey primary key (job_type),
  constraint type_options_queue_is_a_name check (queue.is_name(queue)),
  constraint type_options_attempts_are_positive check (max_attempts >= 1)
);

-- What an enqueue's options say, checked.
create type queue.options as (
  queue         text,
  priority      smallint,
  max_attempts  smallint,
  run_at        timestamptz,  -- null: now
  key           text,         -- the ordering key, or null
  key_policy    text,
  fair          text,         -- the fair key, or null
  unique_key    text,         -- the uniqueness key, or null
  unique_while  text,         -- how that is held: live, queued, kept or until
  unique_until  timestamptz,  -- until when
  on_conflict   text,
  meta          jsonb,
  system        jsonb,        -- which spawn and enqueue_flow say; see job
  version       smallint,     -- of the payload
  expires_at    timestamptz   -- null: never
);

-- Reads the options of an enqueue of this type: an unknown one, or one of a wrong type or out of range, is 22023 and named. JSON null is as not
-- given. It goes through the names that there are, not those that are given: a loop over these was much of its cost.
create function queue.read_options(job_type text, options jsonb) returns queue.options
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  said    queue.options := row('default', 100, 20, null, null, 'block', null, null, 'live', null, 'keep', null, null, 1, null);
  typed   queue.type_options;
  whole   integer; -- a whole number that may be in range, or null
  known   text[] :=
    '{queue,priority,max_attempts,run_at,after,expires_at,expires_in,key,key_policy,fair,unique_key,unique_while,on_conflict,meta,version}';
begin
  if jsonb_typeof(options) is distinct from 'object' then
    raise invalid_parameter_value using message = 'queue.enqueue: the options are a JSON object';
  elsif read_options.job_type like '%@%' then
    raise invalid_parameter_value using message = 'queue.enqueue: the version of a job type is said with the option version, not in its name';
  elsif options - known - 'system' <> '{}' then
    raise invalid_parameter_value using message = format('queue.enqueue: there is no option %s; the options are %s',
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

-- Refuses an option by name.
create function queue.refuse_option(options jsonb, name text, needs text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise invalid_parameter_value using
    message = format('queue.enqueue: the option %s is %s, not %s', name, needs,
      -- Keys may say who somebody is; errors are logged.
      case when name in ('key', 'fair', 'unique_key') then 'of the type ' || jsonb_typeof(options -> name)
        else left((options -> name)::text, 100) end);
end
$$;

-- The whole number that an option is, of at most five digits; null if it is none.
create function queue.read_whole(value jsonb, otherwise integer) returns integer
  language sql immutable parallel safe
  return case
    when pg_catalog.jsonb_typeof(value) = 'null' then otherwise
    when pg_catalog.jsonb_typeof(value) = 'number' and (value #>> '{}') ~ '^-?[0-9]{1,5}$' then (value #>> '{}')::integer
  end;

-- The text that an option is, null if it is not given.
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

-- The time that an option means: for run_at and expires_at a time of RFC 3339, whose meaning depends on no setting of the session, else a wait from
-- now. All are within the range of scheduled, and unique_while is an interval that is not over yet.
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

-- Refuses a time that no table of ours holds. It is called by whatever takes a time to run at; null is now.
create function queue.check_run_at(run_at timestamptz) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if run_at < '1970-01-01+00' or run_at >= '10000-01-01+00' then
    raise invalid_parameter_value using message = format('queue: run_at is a time within the years 1970 to 9999, not %s', run_at);
  end if;
end
$$;

-- Whether this may be a job's metadata.
create function queue.is_meta(meta jsonb) returns boolean
  language sql immutable parallel safe
  return pg_catalog.jsonb_typeof(meta) = 'object' and pg_catalog.octet_length(meta::text) <= queue.meta_limit();

-- The metadata, if it may be a job's; for the bulk path.
create function queue.checked_meta(meta jsonb) returns jsonb
  language plpgsql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not queue.is_meta(meta) then
    raise invalid_parameter_value using
      message = format('queue.enqueue: the option meta is an object of at most %s bytes, not of the type %s with %s bytes',
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

-- Enqueues one job in the caller's transaction and returns its id; with a uniqueness key that is held, the id of the job that holds it. Options:
--
--   queue, priority, max_attempts      else what workers of the type have published, else 'default', 100 and 20
--   run_at | after                     a time, or an interval or seconds from now by the database's clock
--   expires_at | expires_in            unless it has begun by this time, or so long after it may run first, it is over, as expired
--   key, key_policy                    jobs of one ordering key run one at a time in the order of their commits; a dead one holds up its key
--                                      (block) or does not (skip)
--   fair                               jobs of one type and priority with different fair keys take turns, however many there are of each
--   unique_key, unique_while,          one job holds the key: until it is over (live), while it waits unclaimed (queued), as long as its history
--   on_conflict                        is kept (kept), or for an interval; the next enqueue keeps it as it is, replaces its payload or
--                                      debounces it (puts it off to its own time)
--   meta                               a small object that stays with the job, for its handler and for filters
--   version                            of the payload, 1 if it is not said; only workers that know it run the job
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

-- As enqueue; says also what came of it: enqueued, kept (the job that holds the key, as it is), replaced (it has this payload now) or debounced
-- (it runs at this time, if that is later). A job that runs is always kept.
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
    -- A full queue has nothing written to it for a key that nobody has taken.
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
      -- Workers that passed over the entry while it was locked here, or that do not know its new time, are told.
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
    raise invalid_parameter_value using message = format('queue.enqueue: the name of its flow is too long: of a job the store keeps at most %s bytes',
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

-- Many jobs at once for those who enqueue through doors, and for jobs with uniqueness keys.

-- Enqueues each, unless its key is held, in the caller's transaction; returns their ids and what came of them, in the order given. As
-- queue.enqueue_with, one after the other. Jobs without a uniqueness key come first, in the order given; keys are then taken in the order of
-- their hashes, so that two producers with the same keys do not wait for each other.
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

-- Numbers that JSON can say and most languages cannot hold. Enqueues (also 1_jobs.sql, 3_keys.sql, 16_lines.sql) and signals refuse them,
-- for handlers could not read what has them.

-- Whether a number in a JSON text may be beyond 64 bits: such a one has at least as many digits as this.
create function queue.may_overflow(written text) returns boolean
  language sql immutable parallel safe
  return written operator(pg_catalog.~) '[0-9]{20}|-[0-9]{19}';

-- Whether a number as jsonb prints it is one of 64 bits: an integer with or without a sign, or a float. Of a large float jsonb makes an integer: it
-- has the digits of a float, and zeros behind them.
create function queue.fits_64_bits(number text) returns boolean
  language sql immutable parallel safe
  return case
    when number::numeric between -9223372036854775808 and 18446744073709551615 and pg_catalog.strpos(number, '.') = 0 then true
    when pg_catalog.strpos(number, '.') = 0 and pg_catalog.length(pg_catalog.rtrim(pg_catalog.ltrim(number, '-'), '0')) > 17 then false
    else number::numeric = 0 or pg_catalog.abs(number::numeric) between 5e-324 and 1.7976931348623157e308
  end;

-- Refuses a document with a number beyond 64 bits, which handlers in Rust and most other languages cannot read; names where it is.
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
