-- Results, waited for, and progress, reported. Neither is a state of a job: a job is where the tables of 1_jobs.sql have its entry.
-- How a job is, and what came of it, for every language: status is one look, wait looks until the job is over. Both only read.

-- What running jobs say of themselves: a row from the first report on, written under the lease of the attempt (note). A retry keeps it for its
-- checkpoint. It goes soon after the job was completed, cancelled or expired (clear_progress), with a completed job that is brought back (reopen),
-- and stays with a dead letter, whose next life goes on from the checkpoint.
create table queue.progress (
  id          bigint            not null,
  attempt     smallint          not null,               -- that reported last
  updated_at  timestamptz       not null default now(),
  fraction    double precision,
  stage       text,
  counts      jsonb             not null default '{}',  -- events by name, of that attempt
  checkpoint  jsonb,
  constraint progress_updated_at_in_range check (updated_at >= '1970-01-01+00' and updated_at < '10000-01-01+00'),
  constraint progress_pkey primary key (id),
  constraint progress_fraction_in_range check (fraction between 0 and 1),
  constraint progress_counts_by_name check (jsonb_typeof(counts) = 'object')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Which processes wait for jobs to be over. Workers notify only while one does.
create table queue.waiter (
  id          uuid        not null,
  expires_at  timestamptz not null,
  constraint waiter_pkey primary key (id),
  constraint waiter_expires_at_in_range check (expires_at >= '1970-01-01+00' and expires_at < '10000-01-01+00')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- nothing | waiter -> waiter: the process with this id waits for jobs, for another minute. Whoever ends a job asks for these rows after its commit,
-- and the waiter looks at its jobs after this one's: either the row is seen, or that the job is over.
create function queue.announce_waiter(id uuid) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  insert into queue.waiter (id, expires_at)
  values (announce_waiter.id, now() + interval '1 minute')
  on conflict (id) do update set expires_at = excluded.expires_at;
end
$$;

-- waiter -> nothing: the process with this id waits for no job any more.
create function queue.leave_waiter(id uuid) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queue.waiter w where w.id = leave_waiter.id;
end
$$;

-- Tells those who wait for jobs that some are over. To be called last, after what ended them. See tell.sql for who settles.
create function queue.tell_waiters() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.notify('over', '') where exists (select from queue.waiter w where w.expires_at > now());
end
$$;

-- How a job ended: one row if it is over, else none. This and the next two are one place each for what they say. They are inlined into whoever
-- asks, and read a few index entries if that one's plan goes by indexes, whatever was known of the tables when it was made.
create function queue.end_of(id bigint)
  returns table (
    state text, attempts smallint, crashes smallint, finished_at timestamptz, ran_ms integer, error text, output jsonb
  )
  language sql stable
begin atomic
  select case when d.expired then 'expired' when d.cancelled then 'cancelled' else 'completed' end,
    d.attempts, 0::smallint, d.finished_at, d.ran_ms, null::text, d.output
  from queue.done d
  where d.id = end_of.id
  union all
  select 'completed', 1::smallint, 0::smallint, m.finished_at, null, null, null
  from queue.done_many m
  where m.first_id between (end_of.id >> 33) << 33 and end_of.id and m.last_id >= end_of.id and end_of.id = any (m.ids)
  union all
  select 'dead', d.attempts, d.crashes, d.died_at, null, d.error, null
  from queue.dead d
  where d.id = end_of.id
  limit 1;
end;

-- Who waits for a signal: durable jobs that have begun (22_durable.sql).
create table queue.parked (
  id        bigint       not null,
  lane      bigint       not null,
  attempts  smallint     not null,
  crashes   smallint     not null,
  since     timestamptz  not null,
  run_at    timestamptz,            -- when it goes on without a signal; null: not without one
  names     text[]       not null,  -- of the signals; any of them ends the wait
  constraint parked_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint parked_pkey primary key (id),
  constraint parked_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0
);
create index parked_due on queue.parked (run_at) where run_at is not null;
create index parked_by_lane on queue.parked (lane);  -- to count what waits in a queue

-- Where a job is, in one snapshot: one row if there is such a job, else none. lane, seq and run_at are those of the entry that it waits by. The
-- branches run in their order, and the limit stops at the first that has it. A job that is nowhere else runs: leases have no index by job, and
-- are not read here.
create function queue.entry_of(id bigint)
  returns table (
    state text, lane bigint, seq bigint, run_at timestamptz, attempts smallint, crashes smallint,
    finished_at timestamptz, ran_ms integer, error text, output jsonb
  )
  language sql stable
begin atomic
  select coalesce(e.state, 'running'), e.lane, e.seq, e.run_at, e.attempts, e.crashes, e.finished_at, e.ran_ms, e.error, e.output
  from queue.job j
  left join lateral (
    select 'ready' as state, r.lane, r.seq, null::timestamptz as run_at, r.attempts, r.crashes, null::timestamptz as finished_at,
      null::integer as ran_ms, null::text as error, null::jsonb as output
    from queue.ready r
    where r.lane = j.lane and r.seq = entry_of.id and r.id = entry_of.id
    union all
    select 'scheduled', s.lane, null, s.run_at, s.attempts, s.crashes, null, null, null, null
    from queue.scheduled s
    where s.id = entry_of.id
    union all
    select 'parked', p.lane, null, p.run_at, p.attempts, p.crashes, null, null, null, null
    from queue.parked p
    where p.id = entry_of.id
    union all
    select o.state, null, null, null, o.attempts, o.crashes, o.finished_at, o.ran_ms, o.error, o.output
    from queue.end_of(entry_of.id) o
    union all
    -- One that has entered ready a second time.
    select 'ready', r.lane, r.seq, null, r.attempts, r.crashes, null, null, null, null
    from queue.ready r
    where r.id = entry_of.id and r.seq <> r.id
    union all
    select 'blocked', b.lane, b.seq, b.run_at, 0::smallint, 0::smallint, null, null, null, null
    from queue.blocked b
    where b.key = j.key and b.id = entry_of.id
    union all
    -- A suspect that was given back stands at its id in the solo twin.
    select 'ready', r.lane, r.seq, null, r.attempts, r.crashes, null, null, null, null
    from (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
    cross join lateral (
      select r.lane, r.seq, r.attempts, r.crashes
      from queue.ready r
      where r.lane = queue.lane_id(l.queue, l.job_type, l.priority, true) and r.seq = entry_of.id and r.id = entry_of.id
      offset 0
    ) r
    limit 1
  ) e on true
  where j.id = entry_of.id;
end;

-- The attempt of a job that runs: one row, else none. Reads every lease; there are as many as batches in flight.
create function queue.attempt_of(id bigint)
  returns table (attempts smallint, crashes smallint, worker uuid, cancelling boolean)
  language sql stable
begin atomic
  select u.attempts, u.crashes, h.worker, coalesce(u.id = any (h.cancelling), false)
  from queue.lease h
  cross join lateral rows from (pg_catalog.unnest(h.ids), pg_catalog.unnest(h.attempts), pg_catalog.unnest(h.crashes)) u (id, attempts, crashes)
  where attempt_of.id = any (h.ids) and u.id = attempt_of.id
  limit 1;
end;

-- How far these jobs are, in one snapshot: state is completed, dead, cancelled, expired, or live for all that is not over. One that is not there
-- has no row: unknown, not committed yet, pruned, or completed without a record. The settings are there because a plan made while a table was
-- empty would stay a scan of all of it.
create function queue.look(ids bigint[])
  returns table (
    id bigint, state text, attempts smallint, error text, output jsonb,
    reported smallint, updated_at timestamptz, fraction double precision, stage text, counts jsonb
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
    select j.id, coalesce(e.state, 'live'), e.attempts,
      case when e.state = 'cancelled' then (select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1) else e.error end,
      e.output, p.attempt, p.updated_at, p.fraction, p.stage, p.counts
    from unnest(look.ids) u (id)
    cross join lateral (select j.id from queue.job j where j.id = u.id offset 0) j
    left join lateral queue.end_of(u.id) e on true
    left join lateral (
      select p.attempt, p.updated_at, p.fraction, p.stage, p.counts
      from queue.progress p
      where p.id = u.id
      offset 0
    ) p on true;
end
$$;

-- How a job is, and what came of it, for every language: status is one look, wait looks until the job is over. Both only read.
-- With queue.enqueue and queue.cancel these are all that a client needs (docs/ANY_LANGUAGE.md).

-- One job as its producer sees it. No row when it is not there: unknown, not committed yet, pruned, or completed without a record. error is why
-- its last attempt failed, null once it is completed; fraction and stage are what it last said of itself.
create function queue.status(id bigint)
  returns table (state text, attempts smallint, error text, output jsonb, fraction double precision, stage text, meta jsonb)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
    select e.state, coalesce(e.attempts, a.attempts),
      coalesce(
        e.error,
        (select f.error from queue.failure f where f.id = status.id and e.state <> 'completed' order by f.at desc limit 1)
      ),
      e.output, case when e.state = 'completed' then 1 else p.fraction end, p.stage,
      (select j.meta from queue.job j where j.id = status.id)
    from queue.entry_of(status.id) e
    left join lateral (select a.attempts from queue.attempt_of(status.id) a where e.state = 'running' offset 0) a on true
    left join queue.progress p on p.id = status.id;
end
$$;

-- Whether our own transaction has written this job's row, which nobody else can see then. Another's row that we can see is committed.
create function queue.is_ours(id bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
as $$
declare
  written bigint;
  today   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  select j.xmin::text::bigint into written from queue.job j where j.id = is_ours.id;
  -- A row has the low half of its transaction's number: the one meant is the nearest to today's. A savepoint has a number of its own.
  written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;
  return coalesce(pg_xact_status(written::text::xid8) = 'in progress', false);
end
$$;

-- Waits until a job is over (completed, dead, cancelled or expired), and returns its status; no row if it is not over when the timeout has passed. An
-- unknown job is P0002, a transaction that could wait for ever 25000: one that sees only its beginning (repeatable read, serializable),
-- or one that has itself enqueued the job, or changed its row, and has not committed.
--
-- Each look is a statement with a snapshot of its own, the next one an eighth of the time waited later, from 5 to 250 ms: an hour's wait costs
-- what a second's does. Between two looks it holds no lock on a table, or a day could not be dropped: a look that found the job alive is
-- rolled back. But the caller's statement has a snapshot, behind which no vacuum cleans up: keep the timeout short, and call again.
create function queue.wait(id bigint, timeout interval default '30 s')
  returns table (state text, attempts smallint, error text, output jsonb, fraction double precision, stage text, meta jsonb)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  began   timestamptz := clock_timestamp();
  until   timestamptz := began + wait.timeout;
  seen    text;
  ours    boolean;
begin
  if wait.id is null or wait.timeout is null then
    raise null_value_not_allowed using message = 'queue.wait: neither id nor timeout may be null';
  elsif current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise invalid_transaction_state using
      message = format('queue.wait: a %s transaction sees only its beginning, never the end of a job', current_setting('transaction_isolation')),
      hint = 'Wait in a read committed transaction, or outside of one.';
  end if;
  loop
    begin
      seen := (select l.state from queue.look(array[wait.id]) l);
      if seen <> 'live' then
        return query select s.* from queue.status(wait.id) s where s.state in ('completed', 'dead', 'cancelled', 'expired');
        if found then
          return;
        end if;
      elsif ours is null then
        ours := queue.is_ours(wait.id);
      end if;
      raise sqlstate 'QVOID';
    exception when sqlstate 'QVOID' then
      null;
    end;
    if seen is null then
      raise no_data_found using message = format('there is no job %s', wait.id),
        detail = 'It is unknown, not committed yet, pruned, or was completed without a record.';
    elsif ours then
      raise invalid_transaction_state using
        message = format('queue.wait: job %s was enqueued or changed in this transaction, and cannot run before its end', wait.id),
        hint = 'Commit, then wait.';
    elsif clock_timestamp() >= until then
      return;
    end if;
    perform pg_sleep(extract(epoch from least(
      greatest(least((clock_timestamp() - began) / 8, interval '250 ms'), interval '5 ms'),
      until - clock_timestamp())));
  end loop;
end
$$;
