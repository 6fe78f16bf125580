-- Results and progress of jobs, for clients in any language. status queries a job once, and wait polls until the job has finished. Both
-- functions are read-only. Progress reports and waiting processes do not change a job's state (see 1_jobs.sql).

-- Progress reported by running jobs. A job has one row from its first report on, written under the lease of the attempt
-- (record_progress.sql). A retry keeps the row, because the row contains the checkpoint.
--
-- The row is deleted soon after the job is completed, cancelled or expired (clear_progress), and when the job starts from the
-- beginning (reopen, restart). A dead letter keeps its row, and continues from the checkpoint when it is requeued.
create table queue.progress (
  id          bigint            not null,
  attempt     smallint          not null,               -- attempt that reported last
  updated_at  timestamptz       not null default now(),
  fraction    double precision,
  stage       text,
  counts      jsonb             not null default '{}',  -- event counts of that attempt, by event name
  checkpoint  jsonb,
  constraint progress_updated_at_in_range check (updated_at >= '1970-01-01+00' and updated_at < '10000-01-01+00'),
  constraint progress_pkey primary key (id),
  constraint progress_fraction_in_range check (fraction between 0 and 1),
  constraint progress_counts_by_name check (jsonb_typeof(counts) = 'object')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Processes that are waiting for jobs to finish. Workers send notifications only while the table contains an unexpired row.
create table queue.waiter (
  id          uuid        not null,
  expires_at  timestamptz not null,
  constraint waiter_pkey primary key (id),
  constraint waiter_expires_at_in_range check (expires_at >= '1970-01-01+00' and expires_at < '10000-01-01+00')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Registers the process `id` as a waiter for one minute, or extends its registration. Safe: a settle reads this table in a separate
-- statement after its commit, and the waiter queries its jobs after the commit of this call. Therefore either the settle finds the
-- waiter's row, or the waiter finds the job finished.
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

-- Removes the process `id` from the waiters.
create function queue.leave_waiter(id uuid) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queue.waiter w where w.id = leave_waiter.id;
end
$$;

-- Notifies waiters that jobs have finished. Must follow the statements that ended the jobs, as the transaction's last statement. For
-- settles, see notify_waiters.sql.
create function queue.notify_waiters() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.notify('over', '') where exists (select from queue.waiter w where w.expires_at > now());
end
$$;

-- Returns a job's outcome in one row, or no row if the job has not finished. For a single job, end_of, entry_of and attempt_of define which
-- tables are searched. The three functions are inlined into their callers. Callers disable sequential scans, so that the functions read
-- only a few index entries regardless of table statistics.
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

-- Parked jobs: durable jobs that wait for a signal or a child (22_durable.sql), flow nodes that wait for other nodes (25_flows.sql), and
-- parts of a map that wait until other parts of the map have ended (24_gathers.sql).
create table queue.parked (
  id        bigint       not null,
  lane      bigint       not null,
  attempts  smallint     not null,
  crashes   smallint     not null,
  since     timestamptz  not null,
  run_at    timestamptz,            -- time at which the job continues without a signal; null: never
  names     text[]       not null,  -- awaited signals and joins (queue.join_name), any of which ends the wait; empty for flow nodes and map parts
  constraint parked_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint parked_pkey primary key (id),
  constraint parked_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0
);
create index parked_due on queue.parked (run_at) where run_at is not null;
create index parked_by_lane on queue.parked (lane);  -- for counts of the waiting jobs of a queue

-- Returns a job's state and entry, in one snapshot, or no row if the job does not exist. `lane`, `seq` and `run_at` belong to the job's
-- waiting entry.
--
-- The branches are evaluated in order, and the limit stops at the first match. A job that no branch finds is running. The function does
-- not read leases, because they have no index by job.
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
    -- Jobs that entered ready again, and jobs of fair lanes.
    select 'ready', r.lane, r.seq, null, r.attempts, r.crashes, null, null, null, null
    from queue.ready r
    where r.id = entry_of.id and r.seq <> r.id
    union all
    select 'blocked', b.lane, b.seq, b.run_at, 0::smallint, 0::smallint, null, null, null, null
    from queue.blocked b
    where b.key = j.key and b.id = entry_of.id
    union all
    -- Released jobs of a quarantine lane, whose position in that lane is their id.
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

-- Returns a running job's current attempt in one row, or no row if the job is not running. Reads all leases, because leases have no index
-- by job. A lease usually contains all unsettled jobs of one claim, so there are usually fewer leases than running jobs.
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

-- Returns the states of the jobs in `ids`, in one snapshot: completed, dead, cancelled, expired, or live for an unfinished job. A missing
-- job has no row. A job is missing if it is unknown, not committed yet, pruned, or completed without a record. The function's settings
-- prevent sequential scans by a plan that was made while a table was empty.
create function queue.job_states(ids bigint[])
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
    from unnest(job_states.ids) u (id)
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

-- Clients in any language need only status, wait, queue.enqueue and queue.cancel (docs/ANY_LANGUAGE.md).

-- Returns the state and result of one job, for the job's producer. Returns no row if the job is missing: unknown, not committed yet,
-- pruned, or completed without a record. `error` is the last attempt's error, or null if the job is completed. `fraction` and `stage` are
-- the last reported progress; `fraction` is 1 if the job is completed.
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

-- Returns whether the current transaction has written the job's row. An uncommitted row is visible only to the transaction that wrote it,
-- so visible rows of other transactions are committed.
create function queue.is_written_here(id bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
as $$
declare
  written bigint;
  today   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  select j.xmin::text::bigint into written from queue.job j where j.id = is_written_here.id;
  -- A row contains only the low half of its transaction id. The full id is the one nearest to the current transaction id. A savepoint has
  -- an id of its own, so the function checks the status of the id instead of comparing the id with the current one.
  written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;
  return coalesce(pg_xact_status(written::text::xid8) = 'in progress', false);
end
$$;

-- Waits until a job has finished (completed, dead, cancelled or expired), and returns its status. Returns no row if the timeout expires
-- first.
--
-- Raises P0002 for an unknown job. Raises 25000 in a transaction that could wait forever. Such a transaction either has a fixed snapshot
-- (repeatable read, serializable), or has itself enqueued the job or changed the job's row.
--
-- Each poll is a statement with its own snapshot. The poll interval is an eighth of the time waited, between 5 and 250 ms, so a long wait
-- polls four times a second. A poll that found the job unfinished is rolled back, so no table lock is held between polls. A table lock
-- would prevent dropping day partitions. While the function waits, the snapshot of the caller's statement prevents vacuum from removing
-- dead rows. Therefore use a short timeout, and call the function again.
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
      seen := (select l.state from queue.job_states(array[wait.id]) l);
      if seen <> 'live' then
        return query select s.* from queue.status(wait.id) s where s.state in ('completed', 'dead', 'cancelled', 'expired');
        if found then
          return;
        end if;
      elsif ours is null then
        ours := queue.is_written_here(wait.id);
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
