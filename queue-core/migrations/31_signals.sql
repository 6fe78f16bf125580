-- Signals: named messages to one job, in the sender's transaction, which a durable job receives in the order of their arrival.
--
--   signal       written by a sender (queue.signal); deleted by the attempt that journals it as a step (receive.sql), or with the job, as steps
--   signal_hint  written with a signal, and with a job that is parked (park_held.sql); consumed by any worker (wake_parked)
--   parked -> ready   those of the jobs with a hint that have a signal they wait for (wake_parked)
--
-- No wake-up is lost: that there is a signal, and that a job is parked, each commits with a hint, and whoever consumes a hint looks in the next
-- statement, whose snapshot is newer than both. If that sees one of the two and not the other, then the other commits later, and its hint leads to
-- a look that sees both.

-- What has been sent and not received. It is no state of a job: a signal may come before the job asks for it.
create table queue.signal (
  id       bigint       not null,
  seq      bigint       not null default queue.next_key(),
  name     text         not null,
  at       timestamptz  not null default clock_timestamp(),
  payload  jsonb,                  -- null for nothing
  constraint signal_order primary key (id, name, seq),  -- guard: a signal has a place [primary key (id, name, seq) => check (true)]
  constraint signal_name_is_bounded check (octet_length(name) between 1 and 200)  -- guard: a signal's name is bounded
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);

create table queue.signal_hint (
  seq  bigint not null default queue.next_key(),
  id   bigint not null,
  constraint signal_hint_order primary key (seq)  -- guard: a hint of a signal has a place of its own [primary key (seq) => check (true)]
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Sends a signal to a job, in the caller's transaction; waits for nobody. 'sent'; 'over' if the job has ended, 'absent' if there is none, and then
-- nothing is written. A job that ends while it is on its way has not received it. The payload is as large as that of a job at most.
create function queue.signal(id bigint, name text, payload jsonb default null, caller queue.caller default queue.called_by()) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  state  text;
begin
  -- guard: a signal has a name [coalesce .. true) => false]
  if coalesce(octet_length(signal.name) not between 1 and 200 or signal.name ~ '[[:cntrl:]]', true) then
    raise invalid_parameter_value using message = 'queue.signal: a name has 1 to 200 bytes, and no control characters';
  elsif signal.name like '% (join)' then  -- guard: no signal is called as the end of a child [signal.name like '% (join)' => false]
    raise invalid_parameter_value using message = 'queue.signal: names that end so are those of the ends of children';
  -- guard: a signal fits [octet_length(signal.payload::text) > queue.payload_limit() => false]
  elsif octet_length(signal.payload::text) > queue.payload_limit() then
    raise check_violation using constraint = 'signal_payload_fits',
      message = format('queue.signal: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        octet_length(signal.payload::text), queue.payload_limit());
  end if;
  -- guard: who acts on jobs may signal any [ and has_function .. is not true]
  if queue.limits_producers() and has_function_privilege(signal.caller, 'queue.cancel(bigint)'::regprocedure, 'execute') is not true then
    -- guard: a signal is to a job in a queue of one's own [check_queue(l.queue, signal.caller) => is_name(l.queue)]
    perform queue.check_queue(l.queue, signal.caller)
    from queue.job j
    cross join lateral (select l.queue from queue.lane l where l.lane = j.lane limit 1) l
    where j.id = signal.id;
  end if;
  state := (select e.state from queue.entry_of(signal.id) e);
  if state is null then  -- guard: no signal to no job [state is null => false]
    return 'absent';
  elsif state in ('completed', 'dead', 'cancelled', 'expired') then  -- guard: no signal to what is over
    return 'over';
  end if;
  insert into queue.signal (id, name, payload) values (signal.id, signal.name, signal.payload);
  insert into queue.signal_hint (id) values (signal.id);  -- guard: a signal leaves a hint
  perform queue.wake_keys();  -- guard: a signal is told of
  return 'sent';
end
$$;

-- Consumes up to `most` hints from the place `floor` on, and makes ready those of their jobs that are parked and have a signal that they wait for.
-- Returns how many hints there were, without those that are left, the lowest of them, and how many jobs were moved. Waits for nobody: a job that
-- somebody is at work on keeps its hint. To be called under read committed: there the second statement sees whatever was committed before the
-- first one ended.
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
      where h.seq >= wake_parked.floor  -- redundant: hints of signals from a floor on (for speed: dead index entries are not walked)
      order by h.seq  -- redundant: hints of signals in their order (for fairness: each is consumed in the end)
      limit wake_parked.most  -- guard: no more hints of signals than asked for
      for update skip locked  -- guard: passes over hints of signals that others have [ skip locked]
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
    -- guard: wakes only a job with a signal [exists (select from queue.signal .. (p.names)) => true]
    -- guard: wakes for its own signals [s.id = p.id and ]
    -- guard: wakes only for what is waited for [ and s.name = any (p.names)]
    where exists (select from queue.signal s where s.id = p.id and s.name = any (p.names))
      or exists (  -- guard: wakes for a child that is over [or exists => or false and exists]
        select from unnest(p.names) n (name)
        -- guard: wakes for its own children [c.parent = p.id and ]; wakes only for what is over [ and c.state is not null]
        -- guard: wakes for the child that is waited for [ and queue.join_name(c.name) = n.name]
        join queue.child c on c.parent = p.id and queue.join_name(c.name) = n.name and c.state is not null)
      or exists (  -- guard: wakes for a gather that is over [or exists => or false and exists]
        select from unnest(p.names) n (name)
        -- guard: wakes for its own gathers [g.parent = p.id and ]; wakes only for a gather that is over [ and g.need = 0]
        -- guard: wakes for the gather that is waited for [ and queue.join_name(g.name) = n.name]
        join queue.gather g on g.parent = p.id and queue.join_name(g.name) = n.name and g.need = 0)
  ), held as materialized (
    select p.ctid as at
    from queue.parked p
    where p.ctid = any (array(select h.at from heard h))
    for update skip locked  -- guard: passes over parked jobs that others have [ skip locked]
  ), entered as materialized (
    delete from queue.parked p
    where p.ctid = any (array(select h.at from held h))
    returning p.id, p.lane, p.attempts, p.crashes
  ), readied as (
    insert into queue.ready (lane, seq, id, attempts, crashes)
    select e.lane, queue.next_id(), e.id, e.attempts, e.crashes  -- guard: woken: a new place [queue.next_id() => e.id]
    from entered e
  ), left_behind as (
    insert into queue.signal_hint (id)
    select h.id
    from heard h
    -- guard: what is not woken keeps its hint [h.id not in (select e.id from entered e) => false]
    where h.id not in (select e.id from entered e)
    returning id
  )
  -- What is left is not told of: whoever looks every second or so finds it, and nobody looks at it again and again meanwhile.
  select count(*), array_agg(distinct e.lane), greatest(hints - (select count(*) from left_behind), 0) into moved, lanes, hints from entered e;
  perform queue.wake(q.queue)  -- guard: whoever serves the queue of what is woken is told [ queue.wake]
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
end
$$;

-- Looks at the next `most` signals of jobs after this one, and deletes as many of those whose job is gone; returns the job after which to go on, or
-- null at the end. Of a job that is gone with more signals than that, the rest is deleted by the next calls. Rows that others hold are passed over.
create function queue.prune_signals(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'  -- guard: pruning signals waits for no lock for long
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
    where not exists (select from queue.job j where j.id = g.id)  -- guard: only signals of jobs that are gone
  );
  delete from queue.signal s
  where s.ctid = any (array(
    select o.ctid
    from queue.signal o
    where o.id = any (gone)
    order by o.id  -- redundant: what is left is of the last job (the index is walked by the ids in their order)
    limit prune_signals.most  -- guard: no more signals than asked for at once
    for update of o skip locked  -- guard: passes over signals that others hold [ skip locked]
  ));
  get diagnostics deleted = row_count;
  -- guard: what is left of a job that is gone is not passed over [last - 1 => last]
  return case when deleted >= prune_signals.most then last - 1 else last end;
end
$$;

-- What has been sent to a job that is there and not been received, without payloads, in the order in which it came: the first thousand.
create function queue.signals(job bigint) returns table (name text, at timestamptz)
  language sql stable
begin atomic
  select s.name, s.at
  from queue.signal s
  where s.id = signals.job  -- guard: signals of one job
    and exists (select from queue.job j where j.id = signals.job)  -- guard: no signals of what is gone
  order by s.seq  -- guard: signals in the order in which they came
  limit 1000;
end;
