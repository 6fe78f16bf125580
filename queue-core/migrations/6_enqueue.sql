-- The enqueue, for every language: queue.enqueue(job_type, payload, options). Options are named in a jsonb object; this file is where they are
-- read and checked. Plain jobs go on to queue.insert_job, jobs with an ordering key to queue.insert_in_line.

-- What an enqueue's options say, checked.
create type queue.options as (
  queue         text,
  priority      smallint,
  max_attempts  smallint,
  run_at        timestamptz,  -- null: now
  key           text,         -- the ordering key, or null
  key_policy    text,
  unique_key    text,         -- the uniqueness key, or null
  unique_while  text,         -- how that is held: live, queued or until
  unique_until  timestamptz,  -- until when
  on_conflict   text,
  meta          jsonb
);

-- Reads the options of an enqueue: an unknown one, or one of a wrong type or out of range, is 22023 and named. JSON null is as not given.
create function queue.read_options(options jsonb) returns queue.options
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  said   queue.options := row('default', 100, 20, null, null, 'block', null, 'live', null, 'keep', null);
  name   text;
  value  jsonb;
  kind   text;    -- of JSON
  word   text;    -- the value, as text
  whole  integer; -- the value, if it is a whole number that may be in range
  fits   boolean;
  needs  text;    -- what the option has to be
begin
  -- guard: the options are an object [jsonb_typeof(options) is distinct from 'object' => false]
  if jsonb_typeof(options) is distinct from 'object' then
    raise invalid_parameter_value using message = 'queue.enqueue: the options are a JSON object';
  end if;
  for name, value in select o.key, o.value from jsonb_each(read_options.options) o loop
    kind := jsonb_typeof(value);
    continue when kind = 'null';  -- guard: null is not given
    word := value #>> '{}';
    fits := kind = 'string';  -- guard: a text is a text [kind = 'string' => true]
    case name
      when 'queue' then
        needs := 'a name: 1 to 64 of A-Z a-z 0-9 _ . : -';
        fits := fits and queue.is_name(word);  -- guard: a queue is a name [fits := fits and queue.is_name(word) => null]
        said.queue := word;
      when 'priority', 'max_attempts' then
        -- guard: a number is a whole one [case .. end => word::numeric]
        whole := case when kind = 'number' and word ~ '^-?[0-9]{1,5}$' then word end;
        if name = 'priority' then
          needs := 'a whole number from -32768 to 32767';
          -- guard: a priority is in range [coalesce(whole between -32768 and 32767, false) => true]
          fits := coalesce(whole between -32768 and 32767, false);
          said.priority := case when fits then whole end;
        else
          needs := 'a whole number from 1 to 32767';
          fits := coalesce(whole between 1 and 32767, false);  -- guard: there is an attempt [coalesce(whole between 1 and 32767, false) => true]
          said.max_attempts := case when fits then whole end;
        end if;
      when 'run_at', 'after' then
        needs := case name when 'run_at' then 'a time' else 'an interval or a number of seconds' end || ', within the years 1970 to 9999';
        said.run_at := queue.read_time(name, kind, word);
        -- guard: a time is within range [>= '1970-01-01+00' and said.run_at < '10000-01-01+00' => is not null]
        fits := said.run_at >= '1970-01-01+00' and said.run_at < '10000-01-01+00';
        -- guard: one time is said [options -> 'run_at .. -> 'after' <> 'null' => false]
        if options -> 'run_at' <> 'null' and options -> 'after' <> 'null' then
          raise invalid_parameter_value using message = 'queue.enqueue: the option run_at excludes the option after';
        end if;
      when 'key' then
        needs := 'a text';
        said.key := word;
      when 'key_policy' then
        needs := 'block or skip';
        fits := fits and word in ('block', 'skip');  -- guard: a policy is known [fits := fits and word in ('block', 'skip') => null]
        said.key_policy := word;
      when 'unique_key' then
        needs := 'a text';
        said.unique_key := word;
      when 'unique_while' then
        needs := 'live, queued or an interval longer than zero';
        said.unique_while := word;
        if word not in ('live', 'queued') then
          said.unique_while := 'until';
          said.unique_until := queue.read_time(name, kind, word);
          -- guard: a key is held for some time [fits := fits and said.unique_until > clock_timestamp() => null]
          fits := fits and said.unique_until > clock_timestamp();
        end if;
      when 'on_conflict' then
        needs := 'keep, replace or debounce';
        -- guard: what a conflict leads to is known [fits := fits and word in ('keep', 'replace', 'debounce') => null]
        fits := fits and word in ('keep', 'replace', 'debounce');
        said.on_conflict := word;
      when 'meta' then
        needs := format('an object of at most %s bytes', queue.meta_limit());
        fits := queue.is_meta(value);  -- guard: metadata fit [queue.is_meta(value) => true]
        said.meta := value;
      else
        raise invalid_parameter_value using
          message = format('queue.enqueue: there is no option %s; the options are %s', to_json(name), 'queue, priority, max_attempts, run_at, after, '
            'key, key_policy, unique_key, unique_while, on_conflict, meta');
    end case;
    if fits is not true then  -- guard: what does not fit is refused [fits is not true => false]
      raise invalid_parameter_value using
        message = format('queue.enqueue: the option %s is %s, not %s', name, needs, left(value::text, 100));
    end if;
  end loop;
  return said;
end
$$;

-- The time that an option means, null if it is none: a time, or for all options but run_at a wait from now.
create function queue.read_time(option text, kind text, word text) returns timestamptz
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  return case
    when option = 'run_at' then case when kind = 'string' then word::timestamptz end
    when kind = 'number' then clock_timestamp() + word::double precision * interval '1 second'
    when kind = 'string' then clock_timestamp() + word::interval
  end;
exception when data_exception then
  return null;
end
$$;

-- Whether this may be a job's metadata.
create function queue.is_meta(meta jsonb) returns boolean
  language sql immutable parallel safe
  -- guard: metadata are an object [pg_catalog.jsonb_typeof(meta) = 'object' and ]; metadata are small [ and .. <= queue.meta_limit()]
  return pg_catalog.jsonb_typeof(meta) = 'object' and pg_catalog.octet_length(meta::text) <= queue.meta_limit();

-- The metadata, if it may be a job's; for the bulk path.
create function queue.checked_meta(meta jsonb) returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not queue.is_meta(meta) then  -- guard: metadata of many are checked [not queue.is_meta(meta) => false]
    raise invalid_parameter_value using
      message = format('queue.enqueue: the option meta is an object of at most %s bytes, not %s', queue.meta_limit(), left(meta::text, 100));
  end if;
  return meta;
end
$$;

create function queue.check_payload(payload jsonb) returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if payload is null then  -- guard: the payload is one [payload is null => false]
    raise null_value_not_allowed using message = 'queue.enqueue: the payload may not be null';
  -- guard: the payload fits [octet_length(payload::text) > queue.payload_limit() => false]
  elsif octet_length(payload::text) > queue.payload_limit() then
    raise check_violation using constraint = 'job_payload_fits',
      message = format('queue.enqueue: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        octet_length(payload::text), queue.payload_limit());
  end if;
end
$$;

-- Enqueues one job in the caller's transaction and returns its id; with a uniqueness key that is held, the id of the job that holds it. Options:
--
--   queue, priority, max_attempts      else 'default', 100 and 20
--   run_at | after                     a time, or an interval or seconds from now by the database's clock
--   key, key_policy                    jobs of one ordering key run one at a time in the order of their commits; a dead one holds up its key
--                                      (block) or does not (skip)
--   unique_key, unique_while,          one job holds the key: until it is over (live), while it waits unclaimed (queued), or for an interval;
--   on_conflict                        the next enqueue keeps it as it is, replaces its payload or debounces it (puts it off to its own time)
--   meta                               a small object that stays with the job, for its handler and for filters
create function queue.enqueue(job_type text, payload jsonb, options jsonb default '{}') returns bigint
  language plpgsql volatile
as $$
begin
  if options operator(pg_catalog.=) '{}'::pg_catalog.jsonb then
    return queue.insert_job(enqueue.job_type, enqueue.payload);
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
  said   queue.options := queue.read_options(enqueue_with.options);
  taken  uuid := queue.unique_hash(said.queue, enqueue_with.job_type, said.unique_key);
begin
  if taken is not null then
    select t.id, t.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.take_key(taken, enqueue_with.payload, said.run_at, said.on_conflict) t;
    if enqueue_with.id is not null then
      -- Workers that passed over the entry while it was locked here, or that do not know its new time, are told.
      perform queue.wake(said.queue);  -- guard: workers are told
      return;
    end if;
  end if;
  if said.key is null then
    id := queue.insert_job(enqueue_with.job_type, enqueue_with.payload, said.queue, said.priority, said.max_attempts, said.run_at, said.meta);
  else
    id := queue.insert_in_line(enqueue_with.job_type, enqueue_with.payload, said.queue, said.priority, said.max_attempts, said.run_at,
      said.key, said.key_policy, said.meta);
    perform queue.take_capacity(said.queue, 1);  -- guard: a keyed job takes capacity
  end if;
  outcome := 'enqueued';
  if taken is not null then
    -- guard: a key names its job [update .. = taken => null]; only that key does [ where u.hash = taken]
    update queue.unique_key u set id = enqueue_with.id, held = said.unique_while, until = said.unique_until where u.hash = taken;
  end if;
end
$$;

-- As enqueue_with, but if the queue is at its capacity it enqueues nothing, returns null and 'at_capacity', and leaves the transaction as it was.
create function queue.try_enqueue(job_type text, payload jsonb, options jsonb default '{}', out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  select e.id, e.outcome into try_enqueue.id, try_enqueue.outcome
  from queue.enqueue_with(try_enqueue.job_type, try_enqueue.payload, try_enqueue.options) e;
-- guard: a queue at its capacity is no error for who tries (3 lines)
exception when sqlstate 'QCAPA' then
  id := null;
  outcome := 'at_capacity';
end
$$;
