-- The capacity of queues. Only an enqueue asks for it: what comes back to a queue (retries, snoozes, releases, recovered and requeued jobs) is
-- never refused, and a claim or a verdict does not know of it.
--
--   capacity  written by operators (set_capacity), and by producers that count (take_room)

-- How many jobs may wait in a queue; a queue without a row is not bounded. The rest is what the last producer that counted has left to the
-- others: numbers of ticket_seq above since, up to tickets, each good for one job. The row is rewritten by every count, in place.
create table queue.capacity (
  queue     text    not null,
  capacity  bigint  not null,
  counted   bigint  not null default 0,
  since     bigint  not null default 0,
  tickets   bigint  not null default 0,
  constraint capacity_pkey primary key (queue),
  constraint capacity_queue_is_a_name check (queue.is_name(queue)),
  constraint capacity_is_not_negative check (capacity >= 0)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Numbered by all bounded queues together, outside any transaction: a number that was drawn is gone, whatever becomes of who drew it.
-- The first is drawn here, for nobody: last_value of a sequence that was never asked is the number that it will give next, a ticket too many.
create sequence queue.ticket_seq;
select nextval('queue.ticket_seq');

-- Whether an enqueue into this lane has to ask for the capacity of its queue: it looks at this row anyway, and asking every time would be a
-- tenth of its cost. True of every lane of a bounded queue; elsewhere it may be, and does no harm.
alter table queue.lane add column bounded boolean not null default false;

-- What waits in a queue is counted by lane.
create index scheduled_by_lane on queue.scheduled (lane);
create index blocked_by_lane on queue.blocked (lane);
create index lane_by_queue on queue.lane (queue);

-- How many jobs wait in a queue, counted up to most.
create function queue.depth(queue text, most bigint default null) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
begin
  return (
    select count(*)
    from (
      select
      from (select distinct l.lane from queue.lane l where l.queue = depth.queue) l
      cross join lateral (
        select from queue.ready r where r.lane = l.lane
        union all
        select from queue.scheduled s where s.lane = l.lane
        union all
        select from queue.blocked b where b.lane = l.lane
      ) e
      limit most
    ) w
  );
end
$$;

-- Bounds a queue from now on, or no more if capacity is null. What waits already stays; an enqueue in a transaction that began before may not
-- know of it yet. Transactions that have met a new lane of the queue are waited for, up to lock_timeout, so that no lane stays unmarked.
create function queue.set_capacity(queue text, capacity bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('queue.lanes/' || set_capacity.queue, 0));
  if set_capacity.capacity is null then
    delete from queue.capacity c where c.queue = set_capacity.queue;
  else
    insert into queue.capacity as c (queue, capacity)
    values (set_capacity.queue, set_capacity.capacity)
    on conflict on constraint capacity_pkey do update set capacity = excluded.capacity, counted = 0, since = 0, tickets = 0;
  end if;
  update queue.lane l
  set bounded = set_capacity.capacity is not null
  where l.queue = set_capacity.queue and l.bounded <> (set_capacity.capacity is not null);
end
$$;

-- As in 0001, but that a new lane of a bounded queue is marked. An old snapshot does not show whether it is: then it is marked as well.
create or replace function queue.meet_lane(queue text, job_type text, priority smallint, solo boolean) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  met bigint := queue.lane_id(meet_lane.queue, meet_lane.job_type, meet_lane.priority, meet_lane.solo);
begin
  if not exists (select from queue.lane l where l.lane = met) then
    -- Nothing is enqueued into a solo lane, and a recovery must not wait.
    if not solo then
      perform pg_advisory_xact_lock_shared(hashtextextended('queue.lanes/' || meet_lane.queue, 0));
    end if;
    insert into queue.lane (lane, queue, job_type, priority, solo, bounded)
    values (met, meet_lane.queue, meet_lane.job_type, meet_lane.priority, meet_lane.solo,
      exists (select from queue.capacity c where c.queue = meet_lane.queue) or current_setting('transaction_isolation') <> 'read committed');
  end if;
  return met;
end
$$;

-- Lets the transaction keep so many jobs that it has written to a queue, or raises QFULL with {"queue", "capacity"} as its detail.
--
-- Far from the capacity a producer draws tickets, under a lock that all of them share until their transactions end. Who finds none left takes
-- that lock alone: nobody else's jobs of this queue are uncommitted then. It counts, and leaves as many tickets as are missing to four
-- fifths of the capacity; above that, everybody counts. A transaction that has drawn tickets and has to count later waits for the others that
-- have; of two such, one is ended as a deadlock (40P01).
create function queue.take_room(queue text, jobs bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gate   bigint := hashtextextended('queue.room/' || take_room.queue, 0);
  fresh  boolean := current_setting('transaction_isolation') = 'read committed';
  room   queue.capacity;
  depth  bigint;
  drawn  bigint;
begin
  select * into room from queue.capacity c where c.queue = take_room.queue;
  if not found or jobs = 0 then
    return;
  end if;
  -- Under an old snapshot the row says nothing of today's tickets.
  if fresh and room.tickets - (select s.last_value from queue.ticket_seq s) >= jobs then
    begin
      perform pg_advisory_xact_lock_shared(gate);
      -- Who counted while we waited has left others.
      select * into room from queue.capacity c where c.queue = take_room.queue;
      select max(nextval('queue.ticket_seq')) into drawn from generate_series(1, jobs);
      if room.capacity is null or drawn <= room.tickets then
        return;
      end if;
      raise sqlstate 'QVOID';
    exception when sqlstate 'QVOID' then
      -- Gives the lock back: two producers that shared it could not both have it alone.
      null;
    end;
  end if;
  perform pg_advisory_xact_lock(gate);
  select * into room from queue.capacity c where c.queue = take_room.queue;
  if not found then
    return;
  end if;
  depth := queue.depth(take_room.queue, room.capacity + 1);
  drawn := (select s.last_value from queue.ticket_seq s);
  if not fresh then
    -- Jobs that were committed since our snapshot have drawn tickets, or else the update below fails. Tickets of who was rolled back count too:
    -- many jobs at once may be refused early here.
    depth := greatest(depth, room.counted + greatest(least(drawn, room.tickets) - room.since, 0) + jobs);
  end if;
  if depth > room.capacity then
    raise sqlstate 'QFULL' using
      message = format('the queue %s is full: its capacity is %s', take_room.queue, room.capacity),
      detail = json_build_object('queue', take_room.queue, 'capacity', room.capacity)::text,
      hint = 'Wait for its workers, or raise its capacity with queue.set_capacity.';
  end if;
  update queue.capacity c
  set counted = depth, since = drawn, tickets = drawn + greatest(room.capacity * 4 / 5 - depth, 0)
  where c.queue = take_room.queue;
end
$$;

-- As in 0001, but for the last look, which also sees whether the queue may be bounded.
create or replace function queue.enqueue(
  job_type      text,
  payload       jsonb,
  queue         text        default 'default',
  priority      smallint    default 100,
  max_attempts  smallint    default 20,
  run_at        timestamptz default null
) returns bigint
  language plpgsql volatile
as $$
declare
  new_id   bigint := queue.next_id();
  new_lane bigint := queue.lane_id(enqueue.queue, enqueue.job_type, enqueue.priority, false);
  bytes    integer := pg_catalog.octet_length(payload::pg_catalog.text);
  bounded  boolean;
  sleeper  boolean;
begin
  if new_lane is null or payload is null or max_attempts is null then
    raise null_value_not_allowed using message = 'queue.enqueue: only run_at may be null';
  elsif max_attempts operator(pg_catalog.<) 1::smallint then
    raise check_violation using constraint = 'job_max_attempts_is_positive', message = 'queue.enqueue: max_attempts must be at least 1';
  elsif bytes operator(pg_catalog.>) queue.payload_limit() then
    raise check_violation using constraint = 'job_payload_fits',
      message = pg_catalog.format('queue.enqueue: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        bytes, queue.payload_limit());
  end if;
  insert into queue.job (id, lane, max_attempts, payload) values (new_id, new_lane, enqueue.max_attempts, enqueue.payload);
  if run_at operator(pg_catalog.>) pg_catalog.clock_timestamp() then
    insert into queue.scheduled (run_at, id, lane) values (enqueue.run_at, new_id, new_lane);
  else
    insert into queue.ready (lane, seq, id) values (new_lane, new_id, new_id);
  end if;
  select
    (select l.bounded from queue.lane l where l.lane operator(pg_catalog.=) new_lane limit 1),
    exists (select from queue.idle i where i.queue operator(pg_catalog.=) enqueue.queue or i.queue operator(pg_catalog.=) '*'::pg_catalog.text)
    into bounded, sleeper;
  if bounded is null then
    perform queue.meet_lane(enqueue.queue, enqueue.job_type, enqueue.priority, false);
  end if;
  if coalesce(bounded, true) then
    perform queue.take_room(enqueue.queue, 1);
  end if;
  -- Under an older snapshot than this statement's own, a sleeper may be there unseen.
  if sleeper or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text then
    perform pg_catalog.pg_notify('queue.wake', enqueue.queue);
  end if;
  return new_id;
end
$$;
