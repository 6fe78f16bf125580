-- The capacity of queues. Only an enqueue asks for it: what comes back to a queue (retries, snoozes, releases, recovered and requeued jobs) is
-- never refused, and a claim or a verdict does not know of it.
--
--   capacity  written by operators (set_capacity), and by producers that count (take_capacity)

-- How many jobs may wait in a queue; a queue without a row has no capacity. The rest is what the last producer that counted has left to the
-- others: numbers of ticket_seq above since, up to tickets, each good for one job. The row is rewritten by every count, in place.
create table queue.capacity (
  queue     text    not null,
  capacity  bigint  not null,
  counted   bigint  not null default 0,
  since     bigint  not null default 0,
  tickets   bigint  not null default 0,
  constraint capacity_pkey primary key (queue),  -- guard: a queue has one bound
  constraint capacity_queue_is_a_name check (queue.is_name(queue)),  -- guard: a bound is of a name
  constraint capacity_is_not_negative check (capacity >= 0)  -- guard: a bound is not negative
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Numbered by all queues with a capacity together, outside any transaction: a number that was drawn is gone, whatever becomes of who drew it.
-- The first is drawn here, for nobody: last_value of a sequence that was never asked is the number that it will give next, a ticket too many.
create sequence queue.ticket_seq;
select nextval('queue.ticket_seq');

-- How many jobs wait in a queue, counted up to most.
create function queue.depth(queue text, most bigint default null) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return (
    select count(*)
    from (
      select
      -- guard: counts its own queue [ where l.queue = depth.queue]; counts a lane once [ distinct]
      from (select distinct l.lane from queue.lane l where l.queue = depth.queue) l
      cross join lateral (
        -- From behind: in front there are dead entries, more of them the longer anybody holds a snapshot.
        -- guard: counts what is ready (2 lines)
        (select from queue.ready r where r.lane = l.lane order by r.seq desc limit most)
        union all
        -- guard: counts what is scheduled (2 lines)
        select from queue.scheduled s where s.lane = l.lane
        -- guard: counts what is blocked (2 lines)
        union all
        select from queue.blocked b where b.lane = l.lane
      ) e
      limit most  -- guard: counts no further than asked
    ) w
  );
end
$$;

-- Gives a queue a capacity from now on, or takes it away if that is null. What waits already stays; an enqueue in a transaction that began
-- before may not know of it yet. Transactions that have met a new lane of the queue are waited for, up to lock_timeout, so that no lane
-- stays unmarked.
create function queue.set_capacity(queue text, capacity bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'  -- guard: a bound waits for nobody for ever
as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('queue.lanes/' || set_capacity.queue, 0));  -- guard: a bound waits for lanes that are being met
  if set_capacity.capacity is null then
    delete from queue.capacity c where c.queue = set_capacity.queue;  -- guard: a bound ends alone [ where c.queue = set_capacity.queue]
  else
    insert into queue.capacity as c (queue, capacity)
    values (set_capacity.queue, set_capacity.capacity)
    -- guard: tickets of an old bound end [, counted = 0, since = 0, tickets = 0]
    on conflict on constraint capacity_pkey do update set capacity = excluded.capacity, counted = 0, since = 0, tickets = 0;
  end if;
  update queue.lane l
  set has_capacity = set_capacity.capacity is not null  -- guard: a bound marks its lanes [set_capacity.capacity is not null => false]
  -- guard: a bound marks only its lanes [l.queue = set_capacity.queue and ]
  -- redundant: a bound marks only lanes that are not yet [ and .. )] (for speed: the same is written again)
  where l.queue = set_capacity.queue and l.has_capacity <> (set_capacity.capacity is not null);
end
$$;

-- Lets the transaction keep so many jobs that it has written to a queue, or raises QCAPA with {"queue", "capacity"} as its detail.
--
-- Far from the capacity a producer draws tickets, under a lock that all of them share until their transactions end. Who finds none left takes
-- that lock alone: nobody else's jobs of this queue are uncommitted then. It counts, and leaves as many tickets as are missing to four
-- fifths of the capacity; above that, everybody counts. A transaction that has drawn tickets and has to count later waits for the others that
-- have; of two such, one is ended as a deadlock (40P01).
create function queue.take_capacity(queue text, jobs bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gate   bigint := hashtextextended('queue.capacity/' || take_capacity.queue, 0);  -- guard: a capacity of its own queue [ || take_capacity.queue]
  fresh  boolean := current_setting('transaction_isolation') = 'read committed';
  tally   queue.capacity;
  depth  bigint;
  drawn  bigint;
begin
  select * into tally from queue.capacity c where c.queue = take_capacity.queue;
  if not found or jobs = 0 then  -- guard: no jobs take no capacity [ or jobs = 0]
    return;
  end if;
  -- Under an old snapshot the row says nothing of today's tickets.
  -- redundant: no tickets if too few are left [ and .. s) >= jobs] (for speed: numbers beyond the last ticket are void, and the next one counts)
  -- guard: tickets are drawn under a new snapshot [fresh and ]
  if fresh and tally.tickets - (select s.last_value from queue.ticket_seq s) >= jobs then
    begin
      perform pg_advisory_xact_lock_shared(gate);  -- guard: tickets are drawn under a lock
      -- Who counted while we waited has left others.
      select * into tally from queue.capacity c where c.queue = take_capacity.queue;  -- guard: who counted meanwhile is believed
      select max(nextval('queue.ticket_seq')) into drawn from generate_series(1, jobs);  -- guard: a ticket each [jobs => 1]
      -- redundant: a bound that ended meanwhile takes no tickets [tally.capacity is null or ] (for speed: whoever counts next finds no bound either)
      -- guard: tickets end [tally.capacity is null or drawn <= tally.tickets => true]
      if tally.capacity is null or drawn <= tally.tickets then
        return;
      end if;
      raise sqlstate 'QVOID';  -- guard: the lock of a ticket that was void is given back
    exception when sqlstate 'QVOID' then
      -- Gives the lock back: two producers that shared it could not both have it alone.
      null;
    end;
  end if;
  perform pg_advisory_xact_lock(gate);  -- guard: whoever counts is alone
  select * into tally from queue.capacity c where c.queue = take_capacity.queue;  -- guard: who counts believes the newest bound
  if not found then
    return;
  end if;
  depth := queue.depth(take_capacity.queue, tally.capacity + 1);  -- guard: counts one further than the capacity [ + 1]
  drawn := (select s.last_value from queue.ticket_seq s);
  if not fresh then  -- guard: what was committed since an old snapshot counts [not fresh => false]
    -- Jobs that were committed since our snapshot have drawn tickets, or else the update below fails. Tickets of who was rolled back count too:
    -- many jobs at once may be refused early here.
    -- guard: jobs since an old snapshot: as counted then [ tally.counted +]
    -- guard: jobs since an old snapshot: by their tickets [ + greatest(least(drawn, tally.tickets) - tally.since, 0)]
    -- guard: jobs since an old snapshot: not by the marks of counts [least(drawn, tally.tickets) => drawn]
    -- guard: jobs since an old snapshot: and its own [ + jobs]
    depth := greatest(depth, tally.counted + greatest(least(drawn, tally.tickets) - tally.since, 0) + jobs);
  end if;
  if depth > tally.capacity then  -- guard: a full queue refuses [depth > tally.capacity => false]
    raise sqlstate 'QCAPA' using
      message = format('the queue %s is at its capacity of %s waiting jobs', take_capacity.queue, tally.capacity),
      detail = json_build_object('queue', take_capacity.queue, 'capacity', tally.capacity)::text,
      hint = 'Wait for its workers, or raise its capacity with queue.set_capacity.';
  end if;
  update queue.capacity c
  -- redundant: no fewer tickets than none [greatest .. , 0) => (tally.capacity * 4 / 5 - depth)] (a number drawn is never drawn again)
  -- guard: near its capacity everybody counts [ * 4 / 5]
  set counted = depth, since = drawn, tickets = drawn + greatest(tally.capacity * 4 / 5 - depth, 0)
  where c.queue = take_capacity.queue;  -- guard: a count is of one queue [where c.queue = take_capacity.queue]
end
$$;
