-- Expiry. A job with a start deadline expires if no attempt starts before the deadline.
--
--   expiry                                          written by an enqueue with a deadline; consumed by any worker once the deadline has
--                                                   passed (expire_due)
--   ready | scheduled | blocked -> done (expired)   by any worker (expire_due, which calls expire_all)
--   lease -> done (expired)                         by the holder of the lease, before the job starts (expire_held)
--
-- The deadline is in `job.system`, which a claim reads anyway. A job past its deadline therefore does not start, even if expire_due has
-- not found the job yet. Jobs without a deadline have no additional cost.
--
-- A row of expiry is only a reminder to check a job. The job does not expire if it has started or finished before the check, or if its
-- deadline has changed. A job has started once an attempt or a crash has been counted, so retries and jobs of crashed workers do not
-- expire. A job that was released without a charge has not started.

create table queue.expiry (
  at     timestamptz not null,
  id     bigint      not null,
  looks  smallint    not null default 0,  -- number of times that the check was postponed because the job was locked or running
  constraint expiry_due primary key (at, id),
  constraint expiry_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);

-- Returns a time in the format of `job.system`: UTC text of fixed length, which sorts by time.
create function queue.expiry_text(at timestamptz) returns text
  language sql stable strict parallel safe
  return pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- Returns whether a job with these `system` attributes has expired. Ignores a deadline in any format other than that of expiry_text.
create function queue.is_expired(system jsonb) returns boolean
  language sql volatile
  return coalesce(
    system ->> 'expires_at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z$' and
    (system ->> 'expires_at') collate "C" <= queue.expiry_text(pg_catalog.clock_timestamp()), false);

-- Returns the `system` attributes with the deadline added.
create function queue.with_expiry(system jsonb, at timestamptz) returns jsonb
  language sql stable
  return coalesce(system, '{}') || pg_catalog.jsonb_build_object('expires_at', queue.expiry_text(at));

-- Inserts rows into expiry. The insert is a separate function, so that enqueues of jobs without a deadline do not open the table.
create function queue.insert_expiries(at timestamptz[], ids bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into queue.expiry (at, id)
  select u.at, u.id from unnest(insert_expiries.at, insert_expiries.ids) u (at, id);
end
$$;

-- Returns a job's start deadline from its enqueue options, or null if there is none. The options specify a time, or an interval after the
-- earliest start (the enqueue time or run_at). If they specify neither, the job type's default interval applies.
create function queue.read_expiry(options jsonb, run_at timestamptz, typed interval) returns timestamptz
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  moment  timestamptz := clock_timestamp();
  first   timestamptz := greatest(read_expiry.run_at, moment);
  kind    text := jsonb_typeof(options -> 'expires_in');
  meant   timestamptz;
begin
  if options ->> 'expires_at' is not null and options ->> 'expires_in' is not null then
    raise invalid_parameter_value using message = 'queue.enqueue: the option expires_at excludes the option expires_in';
  elsif options ->> 'expires_at' is not null then
    meant := queue.read_time(options, 'expires_at',
      'a time, within the years 1970 to 9999, in the form 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00');
    if read_expiry.run_at > moment and read_expiry.run_at >= meant then
      raise invalid_parameter_value using message = format(
        'queue.enqueue: the job would expire at %s, before it may run at %s; use an earlier run_at, a later expires_at, or expires_in',
        queue.expiry_text(meant), queue.expiry_text(read_expiry.run_at));
    end if;
    return meant;
  end if;
  if options ->> 'expires_in' is null then
    if typed is null then
      return null;
    end if;
    meant := first + typed;
  elsif kind = 'number' and (options ->> 'expires_in')::numeric between 0 and 1e11 then
    meant := first + (options ->> 'expires_in')::double precision * interval '1 second';
  elsif kind = 'string' then
    -- A block with an exception handler starts a subtransaction, so such a block is used only to parse strings.
    begin
      meant := first + (options ->> 'expires_in')::interval;
    exception when data_exception then
      meant := null;
    end;
  end if;
  if (meant > first and meant < '10000-01-01+00') is not true then
    perform queue.reject_option(options, 'expires_in',
      'an interval or a number of seconds, longer than zero, that ends before the year 10000');
  end if;
  return meant;
end
$$;

-- Sets a waiting job's deadline, or removes the deadline if `at` is null. The transaction must have locked the job's entry.
create function queue.set_expiry(id bigint, at timestamptz) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.job j
  set system = case when set_expiry.at is null then nullif(j.system - 'expires_at', '{}') else queue.with_expiry(j.system, set_expiry.at) end
  where j.id = set_expiry.id
    and (set_expiry.at is not null or j.system ? 'expires_at');
  if set_expiry.at is not null then
    insert into queue.expiry (at, id)
    values (set_expiry.at, set_expiry.id)
    on conflict do nothing;
  end if;
end
$$;

-- Removes the deadlines of requeued jobs. The caller must requeue the jobs in the same transaction.
create function queue.forget_expiry(ids bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  update queue.job j
  set system = nullif(j.system - 'expires_at', '{}')
  where j.id = any (forget_expiry.ids) and j.system ? 'expires_at';
end
$$;

-- ready | scheduled | blocked -> done (expired): expires the jobs in `ids` that have not started and whose deadline has passed. Returns
-- their ids. Safe: the function locks the rows in job before it deletes the entries, and checks the deadlines under the lock. A transaction
-- that changes a deadline or requeues a job has either locked the row or committed. Never waits: skips a job if another session has locked
-- the job's row, its entry or the head of its ordering key.
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
    where j.id = any (expire_all.ids) and queue.is_expired(j.system)
    order by j.id
    for update skip locked
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
      for update skip locked
    );
  end if;
  if cardinality(due) > 0 then
    return query select e.id from queue.end_waiting(due, true) e (id);
  end if;
end
$$;

-- Checks the jobs of up to `most` due rows of expiry from `floor` on, and expires the jobs that have not started. Returns the number of
-- rows, their lowest time, the expired jobs, and the jobs whose rows violate a constraint of the target tables (`refused`). A refused job
-- does not affect the other jobs. Locked jobs are checked again at increasing intervals, and so are jobs in their first attempt, because
-- that attempt may be released without being counted.
create function queue.expire_due(
  floor timestamptz, most integer, out hints integer, out lowest timestamptz, out expired bigint[], out refused bigint[]
)
  returns record
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
  set lock_timeout = '100ms'
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
      where e.at >= expire_due.floor and e.at <= moment
      order by e.at
      limit expire_due.most
      for update skip locked
    ))
    returning expiry.*
  )
  select count(*), min(d.at), array_agg(row(d.at, d.id, d.looks)::queue.expiry), '{}', '{}'
  into hints, lowest, taken, expired, refused
  from due d;
  if hints = 0 then
    return;
  end if;
  -- Reads all tables in one statement and therefore in one snapshot, in which each job has exactly one entry.
  with running as materialized (
    select u.id
    from queue.lease l
    cross join lateral unnest(l.ids, l.attempts, l.crashes) u (id, attempts, crashes)
    where u.attempts = 1 and u.crashes = 0
  )
  select array_agg(p.id), coalesce(array_agg(p.id) filter (where p.waits), '{}') into live, waiting
  from (
    select t.id, t.id in (select r.id from running r) as runs,
      exists (select from queue.ready r where r.lane = j.lane and r.seq = t.id and r.attempts = 0 and r.crashes = 0)
        or exists (select from queue.ready r where r.id = t.id and r.seq <> r.id and r.attempts = 0 and r.crashes = 0)
        or exists (select from queue.scheduled s where s.id = t.id and s.attempts = 0 and s.crashes = 0)
        or exists (select from queue.blocked b where b.key = j.key and b.id = t.id)
      as waits
    from unnest(taken) t
    cross join lateral (select j.lane, j.key from queue.job j where j.id = t.id and queue.is_expired(j.system) offset 0) j
  ) p
  where p.waits or p.runs;
  if live is null then
    return;
  end if;
  begin
    expired := array(select e.id from queue.expire_all(waiting) e (id));
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
      exit when locked = 5;
    end loop;
  end if;
  insert into queue.expiry (at, id, looks)
  select moment + 1.25 ^ least(t.looks, 26) * interval '1 second', t.id, least(t.looks + 1, 32767)
  from unnest(taken) t
  where t.id = any (live) and t.id <> all (expired)
  on conflict do nothing;
end
$$;
