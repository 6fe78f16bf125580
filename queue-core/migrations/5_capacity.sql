-- Capacity of queues. Only an enqueue checks the capacity. Claims and verdicts do not read the capacity, and a job that returns to its
-- queue, for example for a retry, is never rejected.
--
--   capacity  written by operators (set_capacity), and by producers that count the waiting jobs (take_capacity)

-- Maximum number of waiting jobs per queue. A queue without a row has no capacity limit. The other columns contain the result of the last
-- count: each number of ticket_seq above `since` and up to `tickets` permits one job. A count updates the row in place, unless another
-- session has locked it.
create table queue.capacity (
  queue     text    not null,
  capacity  bigint  not null,
  counted   bigint  not null default 0,
  since     bigint  not null default 0,
  tickets   bigint  not null default 0,
  beside    bigint  not null default 0,  -- last number of beside_seq at this count; higher numbers stand for jobs whose count did not update the row
  constraint capacity_pkey primary key (queue),
  constraint capacity_queue_is_a_name check (queue.is_name(queue)),
  constraint capacity_is_not_negative check (capacity >= 0),
  constraint capacity_can_be_reckoned_with check (capacity <= 281474976710656)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Ticket numbers, shared by all queues with a capacity. A sequence is not transactional, so a number is consumed even if its transaction
-- rolls back. The next statement draws the first number, because last_value of an unused sequence is a number that has not been drawn.
-- Without this draw, a count would permit one job too many.
create sequence queue.ticket_seq;
select nextval('queue.ticket_seq');

-- Numbers drawn for jobs whose producer could not store its count of the waiting jobs, because another session had locked the queue's row
-- in queue.capacity. A transaction with an old snapshot does not see these jobs, and counts the numbers instead.
create sequence queue.beside_seq;
select nextval('queue.beside_seq');

-- Returns the exact number of waiting jobs of a queue, counted up to `most`, regardless of the cost. For display, use queue.depth.
create function queue.count_waiting(queue text, most bigint) returns bigint
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
      from (select distinct l.lane from queue.lane l where l.queue = count_waiting.queue) l
      cross join lateral (
        -- The index is read from the end, because dead entries accumulate at the front while another session holds an old snapshot.
        (select from queue.ready r where r.lane = l.lane order by r.seq desc limit most)
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

-- Sets a queue's capacity, or removes the capacity if `capacity` is null. Waiting jobs stay. An enqueue in a transaction that began
-- before this call may not see the new capacity yet. Waits up to lock_timeout for transactions that have created a lane of the queue, so
-- that every lane is marked with has_capacity.
create function queue.set_capacity(queue text, capacity bigint) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
begin
  if set_capacity.capacity is null then
    delete from queue.capacity c where c.queue = set_capacity.queue;
  else
    insert into queue.capacity as c (queue, capacity, beside)
    values (set_capacity.queue, set_capacity.capacity, (select s.last_value from queue.beside_seq s))
    on conflict on constraint capacity_pkey do update
    set capacity = excluded.capacity, counted = 0, since = 0, tickets = 0, beside = excluded.beside;
  end if;
  -- The stripe is locked after the capacity's row. A producer that counts holds the row and may create a lane, which locks the stripe. A
  -- producer that creates a lane does not wait for the row. The opposite order could deadlock.
  perform queue.lock_stripe('lanes', hashtext(set_capacity.queue) & 1023);
  update queue.lane l
  set has_capacity = set_capacity.capacity is not null
  where l.queue = set_capacity.queue and l.leaving is null and l.has_capacity <> (set_capacity.capacity is not null);
end
$$;

-- Returns the key of an advisory lock that announces a producer's uncommitted jobs. A transaction that holds the shared lock (key, n) has
-- at most n jobs in the queue that no other session can see yet. A transaction that is waiting to count the queue's jobs may still be
-- rejected, and has already announced all of its jobs. The waiting transaction therefore holds a second lock (key, m + 2^31), where m is
-- the number of jobs that it had announced before the wait.
--
-- Any role can take advisory locks, so the key is derived from the secret, the transaction id and n. A key is valid only for one
-- transaction and one n. Therefore no role can forge announcements, or compute a key before the lock is held.
create function queue.capacity_mark(secret text, queue text, xid bigint, n bigint) returns integer
  language sql immutable strict parallel safe
  return (queue.hash(secret || '/' || queue || '/' || xid::text || '/' || (n & 4294967295)::text) >> 32)::integer;

-- Takes the lock that announces n jobs of the current transaction. Never waits: returns false if another session happens to hold a
-- conflicting lock.
create function queue.mark_jobs(queue text, n bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  xid  bigint := pg_current_xact_id()::text::bigint & 4294967295;
begin
  return (
    select pg_try_advisory_xact_lock_shared(queue.capacity_mark(s.marks, mark_jobs.queue, xid, n), n::integer)
    from queue.secret s
  );
end
$$;

-- Announces additional jobs of the current transaction, and returns the number announced before. The session stores the new number in a
-- setting, which ends with the transaction or savepoint, like the locks. The setting contains a separate value for each store, because a
-- transaction may write to several stores.
--
-- If a transaction enqueues many jobs one at a time, the function announces up to a quarter more than requested. Otherwise the
-- transaction would hold one lock per job.
create function queue.announce_jobs(queue text, jobs bigint) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  announced   jsonb := coalesce(nullif(current_setting('queue_capacity.announced', true), ''), '{}');
  place  text := format('%s/%s', 'queue.capacity'::regclass::oid, announce_jobs.queue);
  total  bigint := coalesce((announced -> place ->> 0)::bigint, 0) + jobs;
  before bigint := coalesce((announced -> place ->> 1)::bigint, 0);
  shown  bigint := before;
begin
  if total > shown then
    shown := least(greatest(total, shown + shown / 4), 2147483647);
    while not queue.mark_jobs(announce_jobs.queue, shown) loop
      shown := shown + 1;
    end loop;
  end if;
  perform set_config('queue_capacity.announced', (announced || jsonb_build_object(place, jsonb_build_array(total, shown)))::text, true);
  return before;
end
$$;

-- Returns the number of jobs that other transactions have announced for the queue. A transaction that is still waiting to count the
-- queue's jobs contributes only the jobs of its earlier enqueues. Jobs of finished transactions are visible to the next snapshot. If a
-- transaction commits before the caller counts the waiting jobs, its jobs may be counted twice: as announced and as waiting.
create function queue.announced_jobs(queue text) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    with held as materialized (
      select l.virtualtransaction as who, l.locktype, l.mode, l.granted, l.transactionid, l.classid, l.objid::bigint as n, l.objsubid
      from pg_locks l
      where coalesce(l.database = (select d.oid from pg_database d where d.datname = current_database()), true)
        and l.pid is distinct from pg_backend_pid()
    ), transaction as materialized (
      -- A savepoint also has a transaction id. The oldest id is that of the top-level transaction.
      select h.who, (array_agg(h.transactionid order by age(h.transactionid) desc))[1]::text::bigint as xid
      from held h
      where h.locktype = 'transactionid' and h.mode = 'ExclusiveLock'
      group by h.who
    ), input as materialized (
      select h.who, h.n, exists (select from held w where w.who = h.who and not w.granted) as waits
      from held h
      join transaction t on t.who = h.who
      cross join queue.secret s
      where h.locktype = 'advisory' and h.objsubid = 2 and h.granted
        and h.classid = (queue.capacity_mark(s.marks, announced_jobs.queue, t.xid, h.n)::bigint & 4294967295)::oid
    )
    select coalesce(sum(s.jobs), 0)
    from (
      select coalesce(
          max(k.n) filter (where k.n >= 2147483648 and k.waits) - 2147483648,
          max(k.n) filter (where k.n < 2147483648)
        ) as jobs
      from input k
      group by k.who
    ) s
  );
end
$$;

create function queue.reject_jobs(queue text, capacity bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise sqlstate 'QCAPA' using
    message = format('the queue %s is at its capacity of %s waiting jobs', reject_jobs.queue, reject_jobs.capacity),
    detail = json_build_object('queue', reject_jobs.queue, 'capacity', reject_jobs.capacity)::text,
    hint = 'Wait for its workers, or raise its capacity with queue.set_capacity.';
end
$$;

-- Raises QCAPA if the queue certainly has no capacity for `jobs` additional jobs. The function is read-only and takes no row lock. Called
-- before a bulk enqueue, which takes the capacity only after it has written the jobs.
create function queue.check_capacity(queue text, jobs bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  tally  queue.capacity;
begin
  select * into tally from queue.capacity c where c.queue = check_capacity.queue;
  if not found or jobs = 0 or current_setting('transaction_isolation') = 'read committed'
    and tally.tickets - (select s.last_value from queue.ticket_seq s) >= jobs
  then
    return;
  elsif queue.count_waiting(check_capacity.queue, tally.capacity + 1) + jobs > tally.capacity then
    perform queue.reject_jobs(check_capacity.queue, tally.capacity);
  end if;
end
$$;

-- Returns an upper bound for the number of jobs in a queue, computed from a possibly outdated row of capacity. The bound is the result of
-- the last count, plus the tickets drawn since, plus the jobs of later counts that did not update the row. The bound includes the tickets
-- of rolled back transactions.
create function queue.jobs_since(tally queue.capacity, drawn bigint) returns bigint
  language sql volatile
  return tally.counted + greatest(least(drawn, tally.tickets) - tally.since, 0) + (select s.last_value from queue.beside_seq s) - tally.beside;

-- Reserves capacity for `jobs` jobs in a queue, or raises QCAPA with {"queue", "capacity"} as detail. `written` is the number of jobs
-- that are already written.
--
-- Far below the capacity, a producer announces its jobs and draws tickets for them. If no ticket is left, the producer counts the waiting
-- jobs, and is rejected immediately if the queue is full. Otherwise the producer announces its jobs and counts under a lock: first the jobs
-- announced by other producers, then the waiting jobs. A producer waits at most 80 ms for other transactions, and cannot deadlock. If other
-- transactions might free capacity when they end, the producer counts repeatedly before it is rejected.
--
-- The limit is exact, because each job draws a number. A transaction announces its jobs before it draws tickets. A count draws its
-- numbers before it reads, so either the count sees the announcement, or the ticket is beyond the count's numbers. Only one session
-- counts at a time, and each count announces its jobs before the next count reads.
create function queue.take_capacity(queue text, jobs bigint, written bigint default 0) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  fresh    boolean := current_setting('transaction_isolation') = 'read committed';
  before   integer;
  give_up  timestamptz := clock_timestamp() + interval '80 ms';
  tally    queue.capacity;
  depth    bigint;
  others   bigint;
  drawn    bigint;
  aside    bigint;
begin
  for look in 1 .. 40 loop
    select * into tally from queue.capacity c where c.queue = take_capacity.queue;
    if not found or jobs = 0 then
      return;
    end if;
    -- Tickets are used only in read committed, because a snapshot older than the statement may show an outdated number of tickets.
    if fresh and tally.tickets - (select s.last_value from queue.ticket_seq s) >= jobs then
      begin
        perform queue.announce_jobs(take_capacity.queue, jobs);
        select max(nextval('queue.ticket_seq')) into drawn from generate_series(1, jobs);
        if drawn <= tally.tickets then
          return;
        end if;
        raise sqlstate 'QVOID';
      exception when sqlstate 'QVOID' then
        null;
      end;
    end if;
    depth := queue.count_waiting(take_capacity.queue, tally.capacity + 1) + jobs - written;
    if not fresh then
      perform from queue.capacity c where c.queue = take_capacity.queue for update skip locked;
      depth := greatest(depth, queue.jobs_since(tally, (select s.last_value from queue.ticket_seq s)) + jobs);
    end if;
    exit when depth > tally.capacity;
    begin
      before := queue.announce_jobs(take_capacity.queue, jobs);
      begin
        perform queue.mark_jobs(take_capacity.queue, -2147483648 + before);
        perform queue.lock_stripe('counts', hashtext(take_capacity.queue) & 1023);
        select max(nextval('queue.ticket_seq')) into drawn from generate_series(1, jobs);
        others := queue.announced_jobs(take_capacity.queue);
        aside := (select s.last_value from queue.beside_seq s);
        depth := queue.count_waiting(take_capacity.queue, tally.capacity + 1) + jobs - written;
        if not fresh then
          -- Jobs committed since the snapshot have drawn tickets or numbers of beside_seq, or their count has updated the row. After an
          -- update, the row lock below fails. With many concurrent jobs, some may be rejected before the queue is full.
          depth := greatest(depth, queue.jobs_since(tally, drawn - jobs) + jobs);
        end if;
        raise sqlstate 'QDONE';
      exception when sqlstate 'QDONE' then
        null;
      end;
      if depth + others > tally.capacity then
        raise sqlstate 'QVOID';
      end if;
      perform from queue.capacity c where c.queue = take_capacity.queue for update skip locked;
      if found then
        update queue.capacity c
        set counted = depth + others, since = drawn, beside = aside,
          -- Near the capacity, tickets cover half of the remaining capacity. Without tickets, every job would require a count of the
          -- whole queue. The other half is a reserve for transactions with an old snapshot, which count the tickets of all queues as jobs
          -- of their queue.
          tickets = drawn + greatest(tally.capacity * 4 / 5 - depth - others, (tally.capacity - depth - others) / 2, 0)
        where c.queue = take_capacity.queue;
      else
        perform nextval('queue.beside_seq') from generate_series(1, jobs);
      end if;
      return;
    exception when sqlstate 'QVOID' then
      null;
    end;
    exit when not fresh or clock_timestamp() > give_up;
    perform pg_sleep(0.002 + random() * 0.003);
  end loop;
  perform queue.reject_jobs(take_capacity.queue, tally.capacity);
end
$$;

-- Enqueues a job as enqueue_with does. If the queue is at its capacity, enqueues nothing and returns a null id with the outcome
-- 'at_capacity'. The transaction stays usable.
create function queue.try_enqueue(job_type text, payload jsonb, options jsonb default '{}', out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  select e.id, e.outcome into try_enqueue.id, try_enqueue.outcome
  from queue.enqueue_with(try_enqueue.job_type, try_enqueue.payload, try_enqueue.options) e;
exception when sqlstate 'QCAPA' then
  id := null;
  outcome := 'at_capacity';
end
$$;

-- Returns the data that a bulk enqueue needs before it writes, and inserts rows for lanes that are not visible. The result contains:
--   lanes          the lanes of the given queues, job types and priorities, in order; null if the caller has to use the entry points
--   now            the current time
--   payload_limit  the maximum payload size in bytes
--   has_capacity   whether one of the queues has a capacity
--   number         the transaction id; null if `lanes` is null, or if the jobs may still be rejected (`written` is false and a queue has a
--                  capacity)
create function queue.ensure_lanes(
  queues text[], job_types text[], priorities integer[], written boolean,
  out lanes bigint[], out now timestamptz, out payload_limit integer, out has_capacity boolean, out number text
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  now := clock_timestamp();
  payload_limit := queue.payload_limit();
  has_capacity := false;
  if queue.is_trusted() then
    lanes := array(
      select queue.ensure_lane(l.queue, l.job_type, l.priority, false)
      from unnest(queues, job_types, priorities) with ordinality l (queue, job_type, priority, place)
      order by l.place
    );
    has_capacity := exists (select from queue.capacity c where c.queue = any (queues));
    -- The transaction id is allocated during the caller's statement, and the snapshot of that statement is older than all snapshots in
    -- this function. Therefore no session treats a lane as unused before the caller can see the lane.
    if written or not has_capacity then
      number := pg_current_xact_id()::text;
    end if;
  end if;
end
$$;

-- Depths: the number of waiting jobs per queue, counted by bounded queries.

-- Returns each queue's number of waiting jobs (ready, scheduled and blocked), and whether there may be more. Counts up to `most` jobs per
-- queue, and up to ten times `most` in total (null: no limit).
create function queue.depths(queues text[], most bigint default 10000)
  returns table (queue text, waiting bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  share  bigint;
begin
  if most < 0 then
    raise invalid_parameter_value using message = format('queue.depth: most must be a number from 0 on, or null for all jobs, not %s', most);
  elsif most > 1000000000 then
    most := 1000000000;
  end if;
  share := most;
  if most is not null and cardinality(queues) > 10 then
    share := greatest(10 * most / cardinality(queues), 1);
  end if;
  return query
  with chosen as materialized (
    select distinct q.queue, l.lane, coalesce(p.seq, 0) as floor, p.partial
    from unnest(depths.queues) q (queue)
    join queue.lane l on l.queue = q.queue
    left join queue.lane_floors() p on p.lane = l.lane and most is not null
  )
  select q.queue, least(n.jobs, share),
    coalesce(n.jobs > share or exists (select from chosen c where c.queue = q.queue and c.partial), false)
  from (select distinct u.queue from unnest(depths.queues) u (queue)) q
  cross join lateral (
    select count(*) as jobs
    from (
      select
      from chosen c
      cross join lateral (
        (select from queue.ready r where r.lane = c.lane and r.seq >= c.floor order by r.seq desc limit share + 1)
        union all
        select from queue.scheduled s where s.lane = c.lane
        union all
        select from queue.blocked b where b.lane = c.lane
      ) e
      where c.queue = q.queue
      limit share + 1
    ) w
  ) n
  order by q.queue;
end
$$;

-- Returns a queue's number of waiting jobs (ready, scheduled and blocked), and whether there may be more. Counts up to `most` jobs (null:
-- no limit).
create function queue.depth(queue text, most bigint default 10000, out waiting bigint, out partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  select d.waiting, d.partial into depth.waiting, depth.partial from queue.depths(array[depth.queue], most) d;
end
$$;

-- Returns the capacity and the number of waiting jobs of each queue that has a capacity; see queue.depths.
create function queue.capacities(most bigint default 10000)
  returns table (queue text, capacity bigint, waiting bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select c.queue, c.capacity, d.waiting, d.partial
  from queue.depths((select coalesce(array_agg(c.queue), '{}') from queue.capacity c), most) d
  join queue.capacity c on c.queue = d.queue
  order by c.queue;
end
$$;
