-- Expiry: a job that says until when it is worth beginning is over, as expired, if no attempt of it has begun by then.
--
--   expiry                                   written by an enqueue that says such a time; consumed by any worker once that has come (expire_due)
--   ready | scheduled | blocked -> done, expired   by any worker (expire_due), or by the one whose transaction holds the entry (expire_all)
--   lease -> done, expired                   by its holder, which has not begun it (expire_held)
--
-- The time stands in the job's metadata, which a claim reads in any case: so a job past its time does not begin, whether or not anybody has looked
-- for it, and jobs without one cost nothing. A row of expiry only says when to look for a job: one that has begun or is over by then is
-- left as it is, and so is one that has another time by now. Begun is what was charged an attempt or a crash: a retry goes on, and so does what a
-- silent worker had. What was given back uncharged has not begun.

create table queue.expiry (
  at     timestamptz not null,
  id     bigint      not null,
  looks  smallint    not null default 0,  -- how often that was put off, for somebody had the job
  constraint expiry_due primary key (at, id),  -- guard: a job expires once at a time [primary key (at, id) => check (true)]
  constraint expiry_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')  -- guard: a time to expire at is one
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);

-- A time as metadata has it: of one length and in UTC, so that an earlier one is a lesser text.
create function queue.expiry_text(at timestamptz) returns text
  language sql stable strict parallel safe
  return pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- Whether a job with these metadata is not to begin any more. What is no time of ours, because somebody wrote it by hand, never is one.
create function queue.is_expired(meta jsonb) returns boolean
  language sql volatile
  return coalesce(
    -- guard: only a time expires [meta ->> .. Z$' and]
    meta ->> 'expires_at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$' and
    (meta ->> 'expires_at') collate "C" <= queue.expiry_text(pg_catalog.clock_timestamp()), false);

-- These metadata with a time to expire at.
create function queue.with_expiry(meta jsonb, at timestamptz) returns jsonb
  language sql stable
  -- guard: a job without metadata may expire [coalesce(meta, '{}') => meta]
  return coalesce(meta, '{}') || pg_catalog.jsonb_build_object('expires_at', queue.expiry_text(at));

-- When a job with these options is not to begin any more, null if it may at any time: a time, or an interval from when it may run first, which is
-- its enqueue or run_at; else as long as its type says. Metadata that say a time themselves are refused.
create function queue.read_expiry(options jsonb, run_at timestamptz, typed interval) returns timestamptz
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  moment  timestamptz := clock_timestamp();
  -- guard: an interval counts from when it may run [greatest(read_expiry.run_at, moment) => moment]
  first   timestamptz := greatest(read_expiry.run_at, moment);
  kind    text := jsonb_typeof(options -> 'expires_in');
  meant   timestamptz;
begin
  -- guard: a time to expire at is said by its option [options -> 'meta' ? 'expires_at' => false]
  if options -> 'meta' ? 'expires_at' then
    raise invalid_parameter_value using message = 'queue.enqueue: the option meta may not have the key expires_at; say the option expires_at';
  -- guard: one expiry is said [options ->> 'expires_at' is not null and options ->> 'expires_in' is not null => false]
  elsif options ->> 'expires_at' is not null and options ->> 'expires_in' is not null then
    raise invalid_parameter_value using message = 'queue.enqueue: the option expires_at excludes the option expires_in';
  elsif options ->> 'expires_at' is not null then
    meant := queue.read_time(options, 'expires_at', 'a time, within the years 1970 to 9999');
    -- guard: a job does not expire before it may run [read_expiry.run_at > moment and read_expiry.run_at >= meant => false]
    -- guard: a time to run at that has passed is now [read_expiry.run_at > moment and ]
    if read_expiry.run_at > moment and read_expiry.run_at >= meant then
      raise invalid_parameter_value using message = format(
        'queue.enqueue: the job would expire at %s, before it may run at %s; say an earlier run_at, a later expires_at, or expires_in',
        queue.expiry_text(meant), queue.expiry_text(read_expiry.run_at));
    end if;
    return meant;
  end if;
  if options ->> 'expires_in' is null then
    if typed is null then
      return null;
    end if;
    meant := first + typed;  -- guard: else as its type says [typed => null]
  elsif kind = 'number' and (options ->> 'expires_in')::numeric between 0 and 1e11 then
    meant := first + (options ->> 'expires_in')::double precision * interval '1 second';
  elsif kind = 'string' then
    -- Only here, for it takes a savepoint.
    begin
      meant := first + (options ->> 'expires_in')::interval;
    exception when data_exception then
      meant := null;
    end;
  end if;
  -- guard: an interval to expire in is one [(meant > first and meant < '10000-01-01+00') is not true => false]
  if (meant > first and meant < '10000-01-01+00') is not true then
    perform queue.refuse_option(options, 'expires_in',
      'an interval or a number of seconds, longer than zero, that ends before the year 10000');
  end if;
  return meant;
end
$$;

-- From now on a job that waits, and whose entry our transaction has locked, expires at this time, or never if that is null.
create function queue.set_expiry(id bigint, at timestamptz) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.job j
  set meta = case when set_expiry.at is null then nullif(j.meta - 'expires_at', '{}') else queue.with_expiry(j.meta, set_expiry.at) end
  where j.id = set_expiry.id  -- guard: sets the expiry of one job [j.id = set_expiry.id => true]
    -- redundant: what has no time is not written [ and (set_expiry .. 'expires_at')] (for speed: it is not written)
    and (set_expiry.at is not null or j.meta ? 'expires_at');
  if set_expiry.at is not null then
    insert into queue.expiry (at, id)
    values (set_expiry.at, set_expiry.id)
    on conflict do nothing;  -- guard: a time may be said again [on conflict do nothing]
  end if;
end
$$;

-- These jobs have no time to expire at any more: somebody wants them to run. To be called by whoever brings them back, in that transaction.
create function queue.forget_expiry(ids bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  update queue.job j
  set meta = nullif(j.meta - 'expires_at', '{}')
  -- guard: only those brought back run late [j.id = any (forget_expiry.ids) and ]
  -- redundant: what has no time loses none [ and j.meta ? 'expires_at'] (for speed: it is not written)
  where j.id = any (forget_expiry.ids) and j.meta ? 'expires_at';
end
$$;

-- ready | scheduled | blocked -> done, expired: those of these jobs whose time has come and that have not begun; returns them.
-- Safe: their rows in job are locked before their entries are taken, and looked at again: whoever gives such a job another time has its row
-- locked or has committed, and whoever brings one back too. It waits for nobody: rows of job, entries and heads of ordering keys that others have
-- locked are passed over, and so are their jobs.
create function queue.expire_all(ids bigint[]) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  due    bigint[];
  heads  bigint[];
begin
  due := array(
    select j.id
    from queue.job j
    -- guard: expire: only the jobs named [j.id = any (expire_all.ids) and ]; expire: only when it is time [ and queue.is_expired(j.meta)]
    where j.id = any (expire_all.ids) and queue.is_expired(j.meta)
    order by j.id  -- redundant: expire: in one order (with skip locked nobody waits)
    -- redundant: expire: passes over jobs that are being changed [ skip locked] (for speed: after a moment each is tried by itself)
    for update skip locked  -- guard: expire: locks jobs [for update skip locked]
  );
  heads := array(
    select a.id
    from queue.job j
    cross join lateral (select a.id from queue.active_key a where a.key = j.key and a.id = j.id offset 0) a
    where j.id = any (due) and j.key is not null
  );
  if cardinality(heads) > 0 then
    due := array(
      select d.id from unnest(due) d (id) where d.id <> all (heads)
    ) || array(
      select a.id
      from queue.active_key a
      where a.key = any (array(select j.key from queue.job j where j.id = any (heads))) and a.id = any (heads)
      -- redundant: expire: passes over keys that others hold [for update skip locked] (for speed: after a moment each is tried by itself)
      for update skip locked
    );
  end if;
  if cardinality(due) > 0 then
    return query select e.id from queue.end_waiting(due, true) e (id);
  end if;
end
$$;

-- Looks for the jobs of up to `most` rows of expiry that are due, from `floor` on, and ends those that have not begun; returns how many rows there
-- were, the first of their times, the jobs that are over, and those that the tables refuse, whatever is wrong with their rows: these stop no
-- other. A job that waits and that somebody has, or whose first attempt is not over, which may be given back uncharged, is looked for again, later
-- each time.
create function queue.expire_due(
  floor timestamptz, most integer, out hints integer, out lowest timestamptz, out expired bigint[], out refused bigint[]
)
  returns record
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
  set lock_timeout = '100ms'  -- guard: an expiry waits for nobody for ever
as $$
declare
  moment  timestamptz := clock_timestamp();
  taken   queue.expiry[];
  live     bigint[];
  waiting  bigint[];
  one     bigint;
  locked  integer := 0;
begin
  with due as materialized (
    delete from queue.expiry
    where ctid = any (array(
      select e.ctid
      from queue.expiry e
      -- redundant: due from a floor on [e.at >= expire_due.floor and ] (for speed: dead index entries are not walked)
      where e.at >= expire_due.floor and e.at <= moment  -- guard: only what is due [ and e.at <= moment]
      order by e.at  -- redundant: the first that are due (for the plan: it goes by the index, which has this order)
      limit expire_due.most  -- guard: no more than asked for
      for update skip locked  -- guard: passes over what others look for [ skip locked]
    ))
    returning expiry.*
  )
  select count(*), min(d.at), array_agg(row(d.at, d.id, d.looks)::queue.expiry), '{}', '{}'
  into hints, lowest, taken, expired, refused
  from due d;
  if hints = 0 then
    return;
  end if;
  -- All places of one snapshot: a job is in one of them.
  with running as materialized (
    select u.id
    from queue.lease l
    cross join lateral unnest(l.ids, l.attempts, l.crashes) u (id, attempts, crashes)
    -- guard: what is tried again is not looked for [u.attempts = 1 and ]; what crashed is not looked for [ and u.crashes = 0]
    where u.attempts = 1 and u.crashes = 0
  )
  select array_agg(p.id), coalesce(array_agg(p.id) filter (where p.waits), '{}') into live, waiting
  from (
    select t.id, t.id in (select r.id from running r) as runs,
      -- guard: a ready one expires [exists .. r.crashes = 0) => false]
      -- guard: a ready one that has begun is left [ and r.attempts = 0]; a ready one that crashed is left [ and r.crashes = 0]
      exists (select from queue.ready r where r.lane = j.lane and r.seq = t.id and r.attempts = 0 and r.crashes = 0)
        -- guard: one that became ready later expires
        -- also: a ready one that has begun is left [ and r.attempts = 0]; also: a ready one that crashed is left [ and r.crashes = 0]
        or exists (select from queue.ready r where r.id = t.id and r.seq <> r.id and r.attempts = 0 and r.crashes = 0)
        -- guard: a scheduled one expires
        -- guard: a retry is left [ and s.attempts = 0]; a scheduled one that crashed is left [ and s.crashes = 0]
        or exists (select from queue.scheduled s where s.id = t.id and s.attempts = 0 and s.crashes = 0)
        -- guard: a blocked one expires
        or exists (select from queue.blocked b where b.key = j.key and b.id = t.id)
      as waits
    from unnest(taken) t
    -- guard: one that has more time now is left to its later row [ and queue.is_expired(j.meta)]
    cross join lateral (select j.lane, j.key from queue.job j where j.id = t.id and queue.is_expired(j.meta) offset 0) j
  ) p
  where p.waits or p.runs;  -- guard: one that may come back is looked for again [ or p.runs]
  if live is null then
    return;
  end if;
  begin
    expired := array(select e.id from queue.expire_all(waiting) e (id));
  -- guard: one job stops no other (2 lines)
  exception when data_exception or integrity_constraint_violation or raise_exception or program_limit_exceeded or lock_not_available then
    expired := null;
  end;
  if expired is null then
    expired := '{}';
    foreach one in array waiting loop
      begin
        expired := expired || array(select e.id from queue.expire_all(array[one]) e (id));
      exception when data_exception or integrity_constraint_violation or raise_exception or program_limit_exceeded then
        refused := refused || one;
      when lock_not_available then
        locked := locked + 1;
      end;
      -- redundant: not for long [when locked = 5 => when false] (for speed: a table that is locked is not waited for by each job)
      exit when locked = 5;
    end loop;
  end if;
  insert into queue.expiry (at, id, looks)
  -- guard: later each time [1.25 ^ least(t.looks, 26) => 1]; not later and later [least(t.looks, 26) => t.looks]
  -- guard: looks are counted up to a number [least(t.looks + 1, 32767) => t.looks + 1]
  select moment + 1.25 ^ least(t.looks, 26) * interval '1 second', t.id, least(t.looks + 1, 32767)
  from unnest(taken) t
  -- guard: what is not over yet is looked for again [t.id = any (live) => false]; what is over is not [ and t.id <> all (expired)]
  where t.id = any (live) and t.id <> all (expired)
  on conflict do nothing;  -- guard: one with two rows is looked for once [on conflict do nothing]
end
$$;
