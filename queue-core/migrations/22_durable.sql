-- Journal of durable jobs: the results of finished steps, from which the next attempt continues.
--
--   step   written by the attempt that holds the job's lease, under the lease token (journal.sql, journal_one.sql); deleted with the
--          job's day partition, by housekeeping, when the job is discarded, or when it starts from the beginning (reopen, restart)
--
-- A step's row is written when the step finishes, and never changes. Only the statements that write or delete steps wait for locks on
-- these rows.

create table queue.step (
  id       bigint       not null,
  at       timestamptz  not null,  -- finish time; columns are ordered to avoid padding
  ran_ms   integer      not null,
  attempt  smallint     not null,  -- attempt that ran the step
  name     text         not null,
  until    timestamptz,            -- end of a sleep; null for other steps
  output   jsonb,                  -- output of the step; null: none
  constraint step_times_in_range check (least(at, until) >= '1970-01-01+00' and greatest(at, until) < '10000-01-01+00'),
  constraint step_pkey primary key (id, name),
  constraint step_name_is_bounded check (pg_catalog.octet_length(name) between 1 and 200)
) partition by range (id);

-- Default partition, for rows whose day has no partition and rows that are retained after the partition of their day is dropped.
create table queue.step_default partition of queue.step default;

-- Checks up to `most` steps of jobs with ids above `after`, and deletes the steps of deleted jobs. Returns the id of the last checked
-- job, or null if no job is left. Skips rows locked by other sessions.
create function queue.prune_steps(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last bigint;
begin
  select max(p.id) into last
  from (select s.id from queue.step s where s.id > prune_steps.after order by s.id limit prune_steps.most) p;
  delete from queue.step s
  where (s.id, s.name) in (
    select o.id, o.name
    from queue.step o
    where o.id > prune_steps.after and o.id <= last
      and not exists (select from queue.job j where j.id = o.id)
    for update of o skip locked
  );
  return last;
end
$$;

-- Returns an object whose field `sleep` is the name of a scheduled job's current sleep, or an empty object. The sleep is found by its end
-- time, which may precede `run_at`, because suspending the job takes time. Timeouts of waits are excluded: they are journaled like
-- sleeps, but do not schedule a job.
create function queue.why_asleep(job bigint, run_at timestamptz) returns jsonb
  language sql stable
begin atomic
  select coalesce((
    select jsonb_build_object('sleep', s.name)
    from queue.step s
    where s.id = why_asleep.job and s.name not like '% (timeout)'
      and s.until > why_asleep.run_at - interval '10 s' and s.until < why_asleep.run_at + interval '1 s'
    order by s.until desc
    limit 1), '{}');
end;

-- Returns the first thousand steps of an existing job, without outputs, ordered by finish time.
create function queue.steps(job bigint)
  returns table (name text, attempt smallint, at timestamptz, ran_ms integer, until timestamptz)
  language sql stable
begin atomic
  select s.name, s.attempt, s.at, s.ran_ms, s.until
  from queue.step s
  where s.id = steps.job
    and exists (select from queue.job j where j.id = steps.job)
  order by s.at, s.name
  limit 1000;
end;

-- Signals: named messages to one job, sent in the sender's transaction. A durable job receives its signals in the order of arrival.
--
--   signal            written by a sender (queue.signal); deleted by the attempt that journals the signal as a step (receive.sql), or
--                     with the job, like a step
--   signal_hint       written with a signal, and with a job that is parked (park_held.sql); consumed by any worker (wake_parked)
--   parked -> ready   jobs with a hint, if a signal for which they are waiting has arrived (wake_parked)
--
-- No wake-up is lost. A signal and an entry in parked each commit together with a hint. After consuming a hint, wake_parked checks for both
-- rows in its next statement, whose snapshot includes all commits that preceded the statement. If the check sees only the signal or only
-- the parked job, the missing row commits later with another hint. The check for that hint sees both rows.

-- Signals that were sent but not received yet. Signals are not part of a job's state, because a signal may arrive before the job waits
-- for it.
create table queue.signal (
  id       bigint       not null,
  seq      bigint       not null default queue.next_key(),
  name     text         not null,
  at       timestamptz  not null default clock_timestamp(),
  payload  jsonb,                  -- null: none
  constraint signal_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint signal_order primary key (id, name, seq),
  constraint signal_name_is_bounded check (octet_length(name) between 1 and 200)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);

create table queue.signal_hint (
  seq  bigint not null default queue.next_key(),
  id   bigint not null,
  constraint signal_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Sends a signal to a job in the caller's transaction, and returns 'sent'. Writes nothing and returns 'over' if the job has finished, or
-- 'absent' if the job does not exist. Never waits for locks. A job that finishes concurrently does not receive the signal. The maximum
-- payload size is the same as for a job.
create function queue.signal(id bigint, name text, payload jsonb default null, caller queue.caller default queue.called_by()) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  state  text;
begin
  if coalesce(octet_length(signal.name) not between 1 and 200 or signal.name ~ '[[:cntrl:]]', true) then
    raise invalid_parameter_value using message = 'queue.signal: a name has 1 to 200 bytes, and no control characters';
  elsif signal.name like '% (join)' then
    raise invalid_parameter_value using message = 'queue.signal: names with this suffix are reserved for the ends of children';
  elsif octet_length(signal.payload::text) > queue.payload_limit() then
    raise check_violation using constraint = 'signal_payload_fits',
      message = format('queue.signal: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        octet_length(signal.payload::text), queue.payload_limit());
  end if;
  perform queue.check_numbers(signal.payload);
  if queue.limits_producers() and has_function_privilege(signal.caller, 'queue.cancel(bigint)'::regprocedure, 'execute') is not true then
    perform queue.check_queue(l.queue, signal.caller)
    from queue.job j
    cross join lateral (select l.queue from queue.lane l where l.lane = j.lane limit 1) l
    where j.id = signal.id;
  end if;
  state := (select e.state from queue.entry_of(signal.id) e);
  if state is null then
    return 'absent';
  elsif state in ('completed', 'dead', 'cancelled', 'expired') then
    return 'over';
  end if;
  insert into queue.signal (id, name, payload) values (signal.id, signal.name, signal.payload);
  insert into queue.signal_hint (id) values (signal.id);
  perform queue.wake_keys();
  return 'sent';
end
$$;

-- Consumes up to `most` rows of signal_hint from position `floor` on. Makes a hinted job ready if it is parked and an awaited signal has
-- arrived, or an awaited child or map has finished. Returns the number of consumed hints, the lowest hint, and the number of jobs moved.
-- Never waits: if another session has locked a job, the job's hint is kept. Requires read committed, because the second statement must see
-- everything committed before the end of the first statement.
create function queue.wake_parked(floor bigint, most integer, out hints integer, out lowest bigint, out moved integer)
  returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  ids    bigint[];
  lanes  bigint[];
begin
  with taken as materialized (
    delete from queue.signal_hint
    where ctid = any (array(
      select h.ctid
      from queue.signal_hint h
      where h.seq >= wake_parked.floor
      order by h.seq
      limit wake_parked.most
      for update skip locked
    ))
    returning signal_hint.seq, signal_hint.id
  )
  select count(*), min(t.seq), array_agg(distinct t.id), 0 into hints, lowest, ids, moved from taken t;
  if hints = 0 then
    return;
  end if;
  with heard as materialized (
    select p.ctid as at, p.id
    from unnest(ids) u (id)
    cross join lateral (select p.ctid, p.id, p.names from queue.parked p where p.id = u.id offset 0) p
    where exists (select from queue.signal s where s.id = p.id and s.name = any (p.names))
      or exists (
        select from unnest(p.names) n (name)
        join queue.child c on c.parent = p.id and queue.join_name(c.name) = n.name and c.state is not null)
      or exists (
        select from unnest(p.names) n (name)
        join queue.gather g on g.parent = p.id and queue.join_name(g.name) = n.name and g.need = 0)
  ), held as materialized (
    select p.ctid as at
    from queue.parked p
    where p.ctid = any (array(select h.at from heard h))
    for update skip locked
  ), entered as materialized (
    delete from queue.parked p
    where p.ctid = any (array(select h.at from held h))
    returning p.id, p.lane, p.attempts, p.crashes
  ), readied as (
    insert into queue.ready (lane, seq, id, attempts, crashes)
    select e.lane, queue.next_id(), e.id, e.attempts, e.crashes
    from entered e
  ), left_behind as (
    insert into queue.signal_hint (id)
    select h.id
    from heard h
    where h.id not in (select e.id from entered e)
    returning id
  )
  -- Kept hints are excluded from the count, because the caller repeats the call immediately while the count is not zero. The next poll, a
  -- second later, finds the kept hints.
  select count(*), array_agg(distinct e.lane), greatest(hints - (select count(*) from left_behind), 0) into moved, lanes, hints from entered e;
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
end
$$;

-- Checks up to `most` signals of jobs with ids above `after`, and deletes up to `most` signals of deleted jobs. Returns the id after
-- which to continue, or null if no job is left. If a deleted job has more than `most` signals, the next calls delete the rest. Skips rows
-- locked by other sessions.
create function queue.prune_signals(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last     bigint;
  gone     bigint[];
  deleted  bigint;
begin
  select max(p.id), array_agg(p.id) into last, gone
  from (
    select distinct n.id
    from (select s.id from queue.signal s where s.id > prune_signals.after order by s.id limit prune_signals.most) n
  ) p;
  gone := array(
    select g.id
    from unnest(gone) g (id)
    where not exists (select from queue.job j where j.id = g.id)
  );
  delete from queue.signal s
  where s.ctid = any (array(
    select o.ctid
    from queue.signal o
    where o.id = any (gone)
    order by o.id
    limit prune_signals.most
    for update of o skip locked
  ));
  get diagnostics deleted = row_count;
  return case when deleted >= prune_signals.most then last - 1 else last end;
end
$$;

-- Returns the first thousand unreceived signals of an existing job, without payloads, in the order of arrival.
create function queue.signals(job bigint) returns table (name text, at timestamptz)
  language sql stable
begin atomic
  select s.name, s.at
  from queue.signal s
  where s.id = signals.job
    and exists (select from queue.job j where j.id = signals.job)
  order by s.seq
  limit 1000;
end;

-- Restarts of durable jobs. A restart empties the journal, which would otherwise grow without bound in a long-lived job.
--
--   lease -> ready | done (cancelled)   by the holder (restart): the same job, with another payload and an empty journal

-- Restarts leased jobs, and returns the rejected jobs. Each job gets its new payload, and the type and version in `stored`. The job
-- enters ready at the end of its lane, and its attempts and crashes are reset. Its records of steps, children, maps and progress are
-- deleted. The job's earlier children and parts continue without a parent. Unreceived signals are kept. A job with a pending cancellation
-- is cancelled instead, and releases its ordering key.
--
-- SECURITY DEFINER entry point, see 11_doors.sql, because a worker has no privilege to write payloads. Restarts are fenced like verdicts: a
-- worker that has lost its lease changes nothing, and a repeated call is rejected. Leases are locked in the order of their tokens. A
-- transaction that journals, receives or spawns holds a lock on the lease until its commit. The statement after the lock has a newer
-- snapshot, and therefore finds all rows to delete. Requires read committed.
create function queue.restart(tokens uuid[], jobs bigint[], attempts integer[], stored text[], payloads text[])
  returns table (token uuid, id bigint)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  lanes        bigint[];
  begun        bigint[];
  refused      uuid[];
  refused_ids  bigint[];
begin
  perform from queue.lease l
  where l.token = any (restart.tokens)
  order by l.token
  for update;
  with input as materialized (
    select s.*
    from unnest(restart.tokens, restart.jobs, restart.attempts, restart.stored, restart.payloads) s (token, id, attempts, stored, payload)
  ), listed as materialized (
    select l.token, u.id, u.attempts, u.crashes, u.place, u.id = any (l.cancelling) is true as cancelling
    from queue.lease l
    cross join lateral rows from (unnest(l.ids), unnest(l.attempts), unnest(l.crashes)) with ordinality u (id, attempts, crashes, place)
    where l.token = any (restart.tokens)
  ), fenced as materialized (
    select distinct on (l.token, l.id) l.token, l.id, s.attempts, s.stored, s.payload, l.cancelling
    from input s
    join listed l on l.token = s.token and l.id = s.id
  ), left_over as materialized (
    select l.token, array_agg(l.id order by l.place) as ids, array_agg(l.attempts order by l.place) as attempts,
      array_agg(l.crashes order by l.place) as crashes
    from listed l
    left join fenced f on f.token = l.token and f.id = l.id
    where f.id is null
    group by l.token
  ), ended as (
    delete from queue.lease l
    where l.token = any (array(select f.token from fenced f except select o.token from left_over o))
  ), shrunk as (
    update queue.lease l
    set ids = o.ids, attempts = o.attempts, crashes = o.crashes
    from left_over o
    where l.token = any (array(select f.token from fenced f)) and l.token = o.token
  ), restarting as materialized (
    select f.id, f.payload::jsonb as payload,
      case when l.job_type = f.stored then j.lane else queue.ensure_lane(l.queue, f.stored, l.priority, false) end as lane
    from fenced f
    cross join lateral (select j.lane from queue.job j where j.id = f.id offset 0) j
    cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
    where not f.cancelling
  ), replaced as (
    update queue.job j
    set payload = a.payload, lane = a.lane, system = nullif(j.system - 'expires_at', '{}')
    from restarting a
    where j.id = a.id
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select a.lane, queue.next_id(), a.id
    from restarting a
  ), undone as (
    delete from queue.step s
    where s.id = any (array(select a.id from restarting a))
  ), forgotten as (
    delete from queue.progress p
    where p.id = any (array(select a.id from restarting a))
  ), finished as (
    insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
    select f.id, statement_timestamp(), 0, f.attempts, true
    from fenced f
    where f.cancelling
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = f.id) and k.id = f.id)
      from fenced f
      where f.cancelling
    ))
    returning active_key.key, active_key.seq
  ), key_hinted as (
    insert into queue.key_hint (key, after)
    select r.key, r.seq
    from freed r
  )
  select (select array_agg(distinct a.lane) from restarting a), (select array_agg(a.id) from restarting a), array_agg(s.token), array_agg(s.id)
  into lanes, begun, refused, refused_ids
  from input s
  where not exists (select from fenced f where f.token = s.token and f.id = s.id);
  perform queue.forget_children(begun);
  perform queue.forget_gathers(begun);
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
  return query select r.token, r.id from unnest(refused, refused_ids) r (token, id);
end
$$;
