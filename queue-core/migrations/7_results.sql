-- Waiting for results, and reporting progress. Neither is a state of a job, which is determined by the tables of 1_jobs.sql. For every language:
-- status queries a job once, wait polls until the job has finished. Both only read.

-- Progress reported by running jobs: one row from the first report on, written under the lease of the attempt (note). A retry keeps the row for its
-- checkpoint. It is deleted soon after the job was completed, cancelled or expired (clear_progress), and with a completed job that is requeued
-- (reopen). It stays with a dead letter, which continues from the checkpoint once requeued.
create table queue.progress (
  id          bigint            not null,
  attempt     smallint          not null,               -- attempt of the last report
  updated_at  timestamptz       not null default now(),
  fraction    double precision,
  stage       text,
  counts      jsonb             not null default '{}',  -- events of that attempt, by name
  checkpoint  jsonb,
  constraint progress_updated_at_in_range check (updated_at >= '1970-01-01+00' and updated_at < '10000-01-01+00'),
  constraint progress_pkey primary key (id),
  constraint progress_fraction_in_range check (fraction between 0 and 1),
  constraint progress_counts_by_name check (jsonb_typeof(counts) = 'object')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Processes that wait for jobs to finish. Workers send notifications only while there are any.
create table queue.waiter (
  id          uuid        not null,
  expires_at  timestamptz not null,
  constraint waiter_pkey primary key (id),
  constraint waiter_expires_at_in_range check (expires_at >= '1970-01-01+00' and expires_at < '10000-01-01+00')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- nothing | waiter -> waiter: the process with this id waits for jobs, for another minute. The transaction that ends a job reads these rows after
-- its commit, and the waiter queries its jobs after the commit of this one: either the row is seen, or the end of the job is.
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

-- waiter -> nothing: the process with this id does not wait for jobs any more.
create function queue.leave_waiter(id uuid) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queue.waiter w where w.id = leave_waiter.id;
end
$$;

-- Notifies waiters that some jobs have finished. Must be the last statement, after those that ended the jobs. For settles see tell.sql.
create function queue.tell_waiters() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.notify('over', '') where exists (select from queue.waiter w where w.expires_at > now());
end
$$;

-- Returns how a job ended: one row if it has finished, otherwise none. This and the next two functions are the only definitions of these facts.
-- They are inlined into their callers, and read few index entries if the caller's plan uses indexes regardless of table statistics.
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

-- Jobs that wait for a signal: durable jobs that have started (22_durable.sql).
create table queue.parked (
  id        bigint       not null,
  lane      bigint       not null,
  attempts  smallint     not null,
  crashes   smallint     not null,
  since     timestamptz  not null,
  run_at    timestamptz,            -- time at which it continues without a signal; null: never
  names     text[]       not null,  -- names of the signals; any of them ends the wait
  constraint parked_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint parked_pkey primary key (id),
  constraint parked_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0
);
create index parked_due on queue.parked (run_at) where run_at is not null;
create index parked_by_lane on queue.parked (lane);  -- counts the waiting jobs of a queue

-- Returns where a job is, in one snapshot: one row if there is such a job, otherwise none. lane, seq and run_at are those of its waiting entry. The
-- branches are evaluated in order, and the limit stops at the first match. A job without any other entry is running: leases have no index by job,
-- and are not read here.
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
    -- Entered ready a second time.
    select 'ready', r.lane, r.seq, null, r.attempts, r.crashes, null, null, null, null
    from queue.ready r
    where r.id = entry_of.id and r.seq <> r.id
    union all
    select 'blocked', b.lane, b.seq, b.run_at, 0::smallint, 0::smallint, null, null, null, null
    from queue.blocked b
    where b.key = j.key and b.id = entry_of.id
    union all
    -- A quarantined job that was released has its id as position in the solo lane.
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

-- Returns the attempt of a running job: one row, otherwise none. Reads every lease, of which there are as many as batches in flight.
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

-- Returns the states of these jobs, in one snapshot: completed, dead, cancelled, expired, or live for all unfinished jobs. A missing job has no
-- row: unknown, not committed yet, pruned, or completed without a record. The settings prevent a plan made while a table was empty from remaining a
-- sequential scan.
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

-- Status of jobs for every language: status queries a job once, wait polls until the job has finished. Both only read. With queue.enqueue and
-- queue.cancel a client needs nothing else (docs/ANY_LANGUAGE.md).

-- Returns one job as its producer sees it. No row if it is missing: unknown, not committed yet, pruned, or completed without a record. error is
-- that of the last attempt, null once the job is completed; fraction and stage are the last progress reported.
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

-- Returns whether the current transaction has written this job's row, which then only it can see. A visible row of another transaction is
-- committed.
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
  -- A row contains the low half of its transaction id: the one meant is nearest to the current id. A savepoint has an id of its own.
  written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;
  return coalesce(pg_xact_status(written::text::xid8) = 'in progress', false);
end
$$;

-- Waits until a job has finished (completed, dead, cancelled or expired), and returns its status; no row if the timeout expires first. Raises P0002
-- for an unknown job. Raises 25000 in a transaction that could wait forever: one with a fixed snapshot (repeatable read, serializable), or one that
-- has itself enqueued the job or changed its row, and has not committed.
--
-- Each poll is a statement with a snapshot of its own. The interval is an eighth of the time waited, between 5 and 250 ms, so a long wait polls
-- four times a second. Between polls it holds no lock on a table, which would prevent a day from being dropped: a poll that found the job
-- unfinished is rolled back. The caller's statement has a snapshot that holds back vacuum: use a short timeout, and call again.
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
