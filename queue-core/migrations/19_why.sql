-- Diagnosis of jobs that are not running: the possible causes, most likely first. The file starts with one function for each cause.
-- queue.why_causes combines the causes, and queue.why describes them. All functions only read the tables. Their cost does not grow with the
-- number of waiting or finished jobs, because counts are limited and start from the end of an index, where entries are live.
--
-- No function except locked_rows locks a row, because claims skip locked rows. To find the holder of a row lock, the functions read the
-- transaction id in the row (xmax) and find the session that holds the lock on this id.

-- Returns a description of the session or prepared transaction that holds a lock, given the lock's columns in pg_locks. A session is
-- described by its pid, a prepared transaction by its name.
create function queue.why_holder(pid integer, virtual text) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if why_holder.pid is not null then
    return jsonb_build_object('pid', why_holder.pid);
  end if;
  return (
    select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared, 'visible', true)
    from pg_locks l
    join pg_prepared_xacts p on p.transaction = l.transactionid
    where l.locktype = 'transactionid' and l.pid is null
      and l.virtualtransaction = why_holder.virtual
    limit 1
  );
end
$$;

-- Returns whether the transaction or savepoint with the id `number` is in progress.
create function queue.is_in_progress(number xid) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  next   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  whole  bigint := (next >> 32 << 32) + is_in_progress.number::text::bigint;
begin
  whole := case when whole >= next then whole - (1::bigint << 32) else whole end;
  return whole > 0 and coalesce(pg_xact_status(whole::text::xid8) = 'in progress', false);
end
$$;

-- Returns the unfinished transactions that have locked a row or are deleting it. Identifies sessions by pid and prepared transactions by
-- name. Returns null if there are no such transactions. `stands` is the row's xmax. An id that is reused after wraparound may belong to
-- an unrelated transaction, so a transaction counts only if it has locked rows of the same table.
create function queue.why_held(of regclass, stands xid) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  lockers  xid[] := array[why_held.stands];
  held     jsonb;
begin
  for look in 1..2 loop
    select jsonb_agg(distinct queue.why_holder(l.pid, l.virtualtransaction)) into held
    from pg_locks l
    where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
      and l.transactionid = any (lockers)
      and exists (
        select
        from pg_locks r
        where r.locktype = 'relation' and r.relation = why_held.of and r.granted and r.virtualtransaction = l.virtualtransaction
          -- Tables of other databases may have the same oid.
          and r.database = (select d.oid from pg_database d where d.datname = current_database())
          and r.mode in ('RowShareLock', 'RowExclusiveLock')
      );
    exit when held is not null or look = 2 or why_held.stands = '0';
    -- Several transactions may share a row lock. The xmax is then the id of a multixact.
    begin
      lockers := array(select m.xid from pg_get_multixact_members(why_held.stands) m);
    exception when internal_error then
      exit;
    end;
  end loop;
  -- A savepoint has its own transaction id, whose lock ends when the savepoint is released. The transaction is then unknown. Candidates
  -- are the transactions that have locked rows of the table and are older than the savepoint.
  if held is null and queue.is_in_progress(why_held.stands) then
    select jsonb_agg(distinct queue.why_holder(l.pid, l.virtualtransaction)) into held
    from pg_locks l
    join pg_locks r on r.virtualtransaction = l.virtualtransaction
    where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
      and age(l.transactionid) > age(why_held.stands)
      and r.locktype = 'relation' and r.relation = why_held.of and r.granted
      and r.database = (select d.oid from pg_database d where d.datname = current_database())
      and r.mode in ('RowShareLock', 'RowExclusiveLock');
  end if;
  return held;
end
$$;

-- Returns the live workers that serve jobs of this queue and stored job type. A worker that is shutting down serves no jobs.
create function queue.why_servers(queue text, stored text) returns table (id uuid, name text, types text[])
  language sql stable
begin atomic
  select w.id, w.name, w.types
  from queue.worker w
  where w.expires_at > now()
    and w.paused_seen < 9223372036854775807
    and (cardinality(w.queues) = 0 or why_servers.queue = any (w.queues))
    and (w.types is null or why_servers.stored = any (w.types));
end;

-- Returns one row with the reason why no worker serves jobs of this queue and stored job type, or no row if a worker does. `last` is
-- the last worker that served these jobs, if the worker's row still exists.
create function queue.why_unserved(queue text, stored text) returns table (kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queue.why_servers(why_unserved.queue, why_unserved.stored)) then
    return;
  end if;
  return query
  with known as (
    select w.name, w.host, w.pid, w.types, w.expires_at, w.expires_at > now() as lives,
      cardinality(w.queues) = 0 or why_unserved.queue = any (w.queues) as of_queue,
      w.types is null or why_unserved.stored = any (w.types) as of_type
    from queue.worker w
  )
  select case when count(*) filter (where k.lives) = 0 then 'no_worker' else 'unserved' end,
    jsonb_build_object(
      'workers', count(*) filter (where k.lives), 'of_queue', count(*) filter (where k.lives and k.of_queue),
      'of_type', count(*) filter (where k.lives and k.of_type), 'draining', count(*) filter (where k.lives and k.of_queue and k.of_type),
      'versions', (
        select coalesce(jsonb_agg(distinct queue.version_of(t.stored)), '[]')
        from known w
        cross join lateral unnest(w.types) t (stored)
        where w.lives and w.of_queue and queue.type_of(t.stored) = queue.type_of(why_unserved.stored)
      ),
      'last', (
        select jsonb_build_object('name', w.name, 'host', w.host, 'pid', w.pid, 'until', w.expires_at)
        from known w
        where not w.lives and w.of_queue and w.of_type
        order by w.expires_at desc
        limit 1
      ))
  from known k;
end
$$;

-- Returns the recent completion rate of a plain lane in jobs per second, and the time of the last completion. Reads the newest history
-- rows of all lanes. The results are null if these rows contain no job of the lane.
create function queue.why_pace(lane bigint, out per_s float8, out last_at timestamptz)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  with newest as materialized (
    (select m.lane, m.finished_at, cardinality(m.ids) as n from queue.done_many m order by m.first_id desc limit 1000)
    union all
    select (select j.lane from queue.job j where j.id = d.id offset 0), d.finished_at, 1
    from (select d.id, d.finished_at, d.cancelled from queue.done d order by d.id desc limit 200) d
    where not d.cancelled
  ), span as (
    select case when count(*) >= 1000 then least(60, extract(epoch from now() - min(w.finished_at))) else 60 end as s from newest w
  )
  select sum(w.n) filter (where w.finished_at >= now() - s.s * interval '1 s') / nullif(greatest(s.s, 0.1), 0)::float8, max(w.finished_at)
  into per_s, last_at
  from newest w
  cross join span s
  where w.lane = why_pace.lane
  group by s.s;
end
$$;

-- Returns the number of ready jobs that run before a job. `ahead` counts the jobs in front of the job in its lane or fair queue. `higher`
-- counts the jobs with higher priority in its queue. A job with higher priority counts only if it may start, and only if its type is served
-- by a worker that also serves this job. Each count is limited to `most` + 1. `held` is the number of the queue's jobs that
-- these workers hold, and `held_since` is their earliest claim time.
create function queue.why_ahead(
  queue text, stored text, priority integer, lane bigint, seq bigint, fair_id bigint, most integer,
  out ahead bigint, out higher bigint, out held bigint, out held_since timestamptz
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  begins  bigint := coalesce((select max(p.seq) from queue.lane_floors() p where p.lane = why_ahead.lane), 0);
begin
  if why_ahead.fair_id is null then
    select count(*) into ahead
    from (
      select from queue.ready r
      where r.lane = why_ahead.lane and r.seq >= begins and r.seq < why_ahead.seq
      order by r.seq desc
      limit why_ahead.most + 1
    ) r;
  else
    select count(*) into ahead
    from (
      select from queue.ready r
      where r.lane = why_ahead.lane and r.fair_id = why_ahead.fair_id and r.seq < why_ahead.seq
      order by r.seq desc
      limit why_ahead.most + 1
    ) r;
  end if;
  with full_ as materialized (
    select b.name
    from queue.bound_in_force b
    cross join lateral queue.free_permits(array[b.limit_id], null) r
    where r.free <= 0 and not b.keyed
  ), before as materialized (
    select distinct l.lane, l.job_type
    from queue.lane l
    where l.queue = why_ahead.queue and not l.solo
      and l.priority > why_ahead.priority
  ), servers as materialized (
    select w.types from queue.why_servers(why_ahead.queue, why_ahead.stored) w
  ), begin_ as materialized (
    select b.lane
    from before b
    where exists (
        select
        from servers w
        where w.types is null or b.job_type = any (w.types)
      )
      and not exists (
        select
        from queue.paused p
        where p.queue in ('*', why_ahead.queue)
          and p.job_type in ('*', queue.type_of(b.job_type))
      )
      and not exists (select from full_ f where queue.covers(f.name, why_ahead.queue, b.job_type))
  )
  select count(*) into higher
  from (
    select
    from begin_ b
    left join queue.lane_floors() p on p.lane = b.lane
    cross join lateral (
      select from queue.ready r where r.lane = b.lane and r.seq >= coalesce(p.seq, 0) order by r.seq desc limit why_ahead.most + 1
    ) r
    limit why_ahead.most + 1
  ) r;
  select coalesce(sum(cardinality(h.ids)), 0), min(h.claimed_at) into held, held_since
  from queue.lease h
  where h.worker = any (array(select w.id from queue.why_servers(why_ahead.queue, why_ahead.stored) w))
    and (h.lane is null or exists (select from queue.lane l where l.lane = h.lane and l.queue = why_ahead.queue));
end
$$;

-- Returns the head of a blocked job's ordering key, and the number of jobs between the head and the job, counted up to `most`. The result
-- has no head if the key is free.
create function queue.why_behind(key bigint, seq bigint, most integer) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  head  record;
  n     bigint;
begin
  select a.id, a.seq, l.queue, queue.type_of(l.job_type) as job_type, e.state, e.run_at, coalesce(e.attempts, r.attempts) as attempts, j.max_attempts,
    left(coalesce(e.error, (select f.error from queue.failure f where f.id = a.id order by f.at desc limit 1)), 500) as error,
    e.finished_at, w.name as worker, coalesce(r.cancelling, false) as cancelling
  into head
  from queue.active_key a
  join queue.job j on j.id = a.id
  cross join lateral (select l.queue, l.job_type from queue.lane l where l.lane = j.lane limit 1) l
  cross join lateral queue.entry_of(a.id) e
  left join lateral (select r.* from queue.attempt_of(a.id) r where e.state = 'running' offset 0) r on true
  left join queue.worker w on w.id = r.worker
  where a.key = why_behind.key;
  select count(*) into n
  from (
    select from queue.blocked b
    where b.key = why_behind.key and b.seq > coalesce(head.seq, 0) and b.seq < why_behind.seq
    order by b.seq desc
    limit why_behind.most + 1
  ) b;
  return jsonb_strip_nulls(jsonb_build_object(
    'head', head.id::text, 'head_state', head.state, 'head_queue', head.queue, 'head_type', head.job_type, 'head_run_at', head.run_at,
    'head_attempts', head.attempts, 'head_max_attempts', head.max_attempts, 'head_error', head.error, 'head_finished_at', head.finished_at,
    'head_sleep', queue.why_asleep(head.id, head.run_at) ->> 'sleep', 'head_worker', head.worker, 'head_cancelling', head.cancelling,
    'between', least(n, why_behind.most), 'partial', n > why_behind.most));
end
$$;

-- Returns the available facts about a missing job: the time contained in its id, the enqueue times of the store's oldest and newest jobs,
-- uncommitted transactions that have enqueued jobs, and other stores in the database.
create function queue.why_absent(id bigint) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return jsonb_strip_nulls(jsonb_build_object(
    -- The time is null if the database clock cannot have produced the id.
    'given_at', case when why_absent.id >> 20 between 946684800000 and 253402300799999 then queue.enqueued_at(why_absent.id) end,
    'future', why_absent.id >= queue.id_at(clock_timestamp() + interval '1 second'),
    'oldest_at', (select queue.enqueued_at(j.id) from queue.job j order by j.id limit 1),
    'newest_at', (select queue.enqueued_at(j.id) from queue.job j order by j.id desc limit 1),
    'sessions', (
      select jsonb_agg(distinct queue.why_holder(l.pid, l.virtualtransaction))
      from pg_locks l
      where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted and l.relation = 'queue.job'::regclass
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
        and l.pid is distinct from pg_backend_pid()
    ),
    'stores', (
      select jsonb_agg(n.nspname order by n.nspname)
      from (
        select n.nspname
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where c.relname = 'active_key' and c.relkind = 'r'
          and c.relnamespace <> (select r.relnamespace from pg_class r where r.oid = 'queue.job'::regclass)
        limit 10
      ) n
    )));
end
$$;

-- The following functions collect the causes from one snapshot. queue.why_causes is a SECURITY DEFINER entry point for roles that may not
-- read the tables. The function returns no payload.

-- Returns the facts about a finished job: its outcome, and the errors of its last attempts in chronological order.
create function queue.why_finished(id bigint) returns jsonb
  language sql stable
begin atomic
  select jsonb_strip_nulls(jsonb_build_object(
    'finished_at', e.finished_at, 'ran_ms', e.ran_ms, 'attempts', e.attempts, 'crashes', nullif(e.crashes, 0), 'error', left(e.error, 500),
    'failures', (
      select jsonb_agg(jsonb_build_object('attempt', f.attempt, 'at', f.at, 'ran_ms', f.ran_ms, 'error', left(f.error, 500)) order by f.at, f.attempt)
      from (
        select f.attempt, f.at, f.ran_ms, f.error
        from queue.failure f
        where f.id = why_finished.id
        order by f.at desc, f.attempt desc
        limit 20
      ) f
    )))
  from queue.end_of(why_finished.id) e;
end;

-- Returns the causes for a running job: the worker that holds the job, and sessions that have locked the lease. The cause with the worker
-- also contains the claim time and the progress that the job has reported.
create function queue.why_running(id bigint) returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return query
  with at as materialized (
    select u.attempts, h.worker, h.claimed_at, cardinality(h.ids) as jobs, h.xmax as stands, coalesce(u.id = any (h.cancelling), false) as cancelling
    from queue.lease h
    cross join lateral rows from (unnest(h.ids), unnest(h.attempts)) u (id, attempts)
    where why_running.id = any (h.ids) and u.id = why_running.id
    limit 1
  ), known as materialized (
    select a.*, w.name, w.host, w.pid, w.expires_at - w.ttl as beat_at, w.expires_at, coalesce(w.expires_at > now(), false) as lives,
      p.fraction, p.stage, p.counts, p.updated_at
    from at a
    left join queue.worker w on w.id = a.worker
    left join queue.progress p on p.id = why_running.id and p.attempt = a.attempts
  )
  select case when not k.lives then 2 when k.cancelling then 4 else 5 end::float8,
    case when not k.lives then 'silent_worker' when k.cancelling then 'cancelling' else 'running' end,
    jsonb_strip_nulls(jsonb_build_object(
      'attempt', k.attempts, 'worker', k.worker, 'name', k.name, 'host', k.host, 'pid', k.pid, 'claimed_at', k.claimed_at, 'jobs', k.jobs,
      'beat_at', k.beat_at, 'expires_at', k.expires_at, 'cancelling', k.cancelling, 'reported_at', k.updated_at, 'fraction', k.fraction,
      'stage', k.stage, 'counts', nullif(k.counts, '{}'),
      'workers', case when not k.lives then (select count(*) from queue.worker w where w.expires_at > now()) end))
  from known k
  union all
  select 1, 'lease_locked', jsonb_build_object('sessions', s.held, 'name', k.name, 'silent', not k.lives)
  from known k
  cross join lateral (select queue.why_held('queue.lease', k.stands) as held) s
  where s.held is not null;
end
$$;

-- Returns the limits that delay a ready job: limits without a free permit, limits that some workers have not acknowledged, and limits
-- whose limiter another session has locked.
create function queue.why_limited(id bigint, queue text, stored text) returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return query
  select case when w.awaits > 0 then 29 else 30 end::float8, case when w.awaits > 0 then 'limit_unknown' else 'limited' end,
    jsonb_strip_nulls(jsonb_build_object(
      'limit', w.name, 'keyed', w.keyed, 'fair_id', case when w.keyed then w.fair_id::text end, 'key', w.key, 'used', w.used,
      'concurrency', w.concurrency, 'starts', b.starts, 'period_ms', b.period_ms, 'next_ms', w.wait_ms, 'by_operator', b.by_operator,
      'reason', b.reason, 'since', b.since, 'set_by', b.set_by,
      'awaits', (
        select jsonb_agg(jsonb_build_object('name', a.name, 'host', a.host, 'pid', a.pid)) from queue.limit_awaits(b.number) a where w.awaits > 0
      )))
  from queue.waits_for(why_limited.id) w
  join queue.bound_in_force b on b.name = w.name
  union all
  -- `limit_locked` ranks before `locked`, because a claim that waits for the limiter also holds locks on entries. The locked limiter is
  -- then the cause, and the locked entry only a consequence.
  select 24, 'limit_locked', jsonb_build_object('limit', b.name, 'sessions', s.held)
  from queue.bound_in_force b
  join queue.limiter g on g.limit_id = b.limit_id
  cross join lateral (select queue.why_held('queue.limiter', g.xmax) as held) s
  where queue.covers(b.name, why_limited.queue, why_limited.stored) and s.held is not null;
end
$$;

-- Returns the pauses that cover jobs of this queue and stored job type.
create function queue.why_paused(queue text, stored text) returns table (facts jsonb)
  language sql stable
begin atomic
  select jsonb_strip_nulls(jsonb_build_object(
    'queue', nullif(p.queue, '*'), 'job_type', nullif(p.job_type, '*'), 'reason', p.reason, 'since', p.paused_at, 'by', p.paused_by))
  from queue.paused p
  where p.queue in ('*', why_paused.queue)
    and p.job_type in ('*', queue.type_of(why_paused.stored))
  order by p.paused_at;
end;

-- Returns the causes that delay a ready job until its turn: it is quarantined, other jobs run first, or its workers are busy.
create function queue.why_turn(
  id bigint, queue text, stored text, priority integer, plain bigint, lane bigint, seq bigint, fair_id bigint, crashes integer, is_stopped boolean
)
  returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  most    constant integer := 10000;
  solo    boolean := lane not in (plain, queue.paired_lane(plain));
  turn    record;
  pace    record;
begin
  turn := queue.why_ahead(why_turn.queue, why_turn.stored, why_turn.priority, why_turn.lane, why_turn.seq, why_turn.fair_id, most);
  if solo then
    return query select 50::float8, 'suspect', jsonb_build_object('crashes', why_turn.crashes, 'alone', why_turn.crashes > 1, 'ahead', turn.ahead);
  end if;
  if is_stopped then
    return;
  end if;
  if turn.higher > 0 then
    return query select 60::float8, 'starved', jsonb_strip_nulls(jsonb_build_object(
      'higher', least(turn.higher, most), 'partial', turn.higher > most, 'held', turn.held, 'held_since', turn.held_since));
  end if;
  if turn.ahead > 0 then
    pace := queue.why_pace(why_turn.plain);
    return query select 70::float8, 'behind', jsonb_strip_nulls(jsonb_build_object(
      'ahead', least(turn.ahead, most), 'partial', turn.ahead > most, 'is_fair', why_turn.fair_id is not null, 'per_s', pace.per_s,
      'wait_ms', case when turn.ahead <= most and why_turn.fair_id is null then 1000 * turn.ahead / pace.per_s end,
      'held', turn.held, 'held_since', turn.held_since));
  elsif turn.held > 0 and clock_timestamp() > queue.enqueued_at(why_turn.seq) + interval '3 s' then
    return query select 80::float8, 'workers_busy', jsonb_build_object('held', turn.held, 'held_since', turn.held_since);
  end if;
end
$$;

-- Returns the causes common to all waiting states: no worker serves the job, the job is paused, its deadline has passed, or a session has
-- locked its entry.
create function queue.why_waiting(
  id bigint, queue text, stored text, state text, late boolean, system jsonb, key bigint, lane bigint, seq bigint
)
  returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  -- Offset for the ranks of the causes below that apply only to a ready job. The offset is positive while other causes keep the job from
  -- becoming ready. A higher rank means a less likely cause.
  later  float8 := case when state = 'ready' or late then 0 else 60 end;
  held   jsonb;
begin
  return query select later + 10, u.kind, u.facts from queue.why_unserved(why_waiting.queue, why_waiting.stored) u;
  return query select later + 20, 'paused', p.facts from queue.why_paused(why_waiting.queue, why_waiting.stored) p;
  held := case why_waiting.state
    when 'ready' then (
      select queue.why_held('queue.ready', r.xmax) from queue.ready r where r.lane = why_waiting.lane and r.seq = why_waiting.seq)
    when 'scheduled' then (select queue.why_held('queue.scheduled', s.xmax) from queue.scheduled s where s.id = why_waiting.id)
    when 'parked' then (select queue.why_held('queue.parked', p.xmax) from queue.parked p where p.id = why_waiting.id)
    else (select queue.why_held('queue.blocked', b.xmax) from queue.blocked b where b.key = why_waiting.key and b.id = why_waiting.id) end;
  if held is not null then
    return query select later + 25, 'locked', jsonb_build_object('sessions', held);
  end if;
  if queue.is_expired(why_waiting.system) then
    return query select 1::float8, 'past_expiry', jsonb_build_object('expires_at', why_waiting.system -> 'expires_at');
  end if;
end
$$;

-- Returns up to a hundred children that a parked job waits for, or null if there are none. Each entry contains the child's name and id,
-- the name of the wait, and the child's outcome, or its state if it is unfinished.
create function queue.why_joined(id bigint, names text[]) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
begin
  return (
    select jsonb_build_object('children',
      jsonb_agg(jsonb_build_object('name', c.name, 'wait', queue.join_name(c.name), 'id', c.id::text,
        'state', coalesce(c.state, queue.state_of(c.id), 'completed')) order by c.id))
    from (
      select c.name, c.id, c.state
      from queue.child c
      where c.parent = why_joined.id and queue.join_name(c.name) = any (why_joined.names)
      order by c.id
      limit 100
    ) c
    having count(*) > 0
  );
end
$$;

-- Returns the causes with their ranks, lowest first, and a description of the job (null: the job does not exist). The last cause of a
-- ready job is always `nothing`: nothing prevents the job from running. This cause is valid only if it is the sole cause.
create function queue.why_causes(id bigint) returns table (rank float8, kind text, facts jsonb, job jsonb)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  at       record;
  where_   jsonb;
  servers  bigint;
  late     boolean;
  failed   jsonb;
begin
  select j.key, j.system, j.max_attempts, j.lane as plain, l.queue, l.job_type as stored, l.priority, e.state, e.lane, e.seq, e.run_at,
    e.attempts, e.crashes
  into at
  from queue.job j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
  cross join lateral queue.entry_of(why_causes.id) e
  where j.id = why_causes.id;
  if not found then
    return query select 0::float8, 'no_such_job', queue.why_absent(why_causes.id), null::jsonb;
    return;
  end if;
  -- Whether the job could become ready and only waits for a worker to move it.
  late := case at.state when 'scheduled' then at.run_at <= now()
    when 'parked' then coalesce(at.run_at <= now(), false) or exists (
      select from queue.parked p join queue.signal s on s.id = p.id and s.name = any (p.names) where p.id = why_causes.id)
      or exists (
        select from queue.parked p join queue.child c on c.parent = p.id and queue.join_name(c.name) = any (p.names)
        where p.id = why_causes.id and c.state is not null)
    when 'blocked' then not exists (select from queue.active_key k where k.key = at.key) else false end;
  select count(*) into servers from queue.why_servers(at.queue, at.stored) s;
  where_ := jsonb_strip_nulls(jsonb_build_object(
    'state', at.state, 'queue', at.queue, 'job_type', queue.type_of(at.stored), 'version', queue.version_of(at.stored), 'priority', at.priority,
    'attempts', at.attempts, 'max_attempts', at.max_attempts, 'crashes', nullif(at.crashes, 0), 'servers', servers,
    'waited_ms', case when at.state = 'ready' then extract(epoch from clock_timestamp() - queue.enqueued_at(at.seq)) * 1000 end));
  if at.state = 'running' then
    return query select r.rank, r.kind, r.facts, where_ from queue.why_running(why_causes.id) r;
    return;
  elsif at.state not in ('ready', 'scheduled', 'blocked', 'parked') then
    return query select 0::float8, at.state, queue.why_finished(why_causes.id), where_;
    return;
  end if;
  return query
  select w.rank, w.kind, w.facts, where_
  from queue.why_waiting(why_causes.id, at.queue, at.stored, at.state, late, at.system, at.key, at.lane, at.seq) w
  where w.kind <> 'past_expiry' or (at.attempts = 0 and at.crashes = 0);
  failed := (
    select jsonb_build_object('failed_at', f.at, 'error', left(f.error, 500))
    from queue.failure f
    where f.id = why_causes.id and at.attempts > 0
    order by f.at desc
    limit 1
  );
  if at.state = 'scheduled' then
    return query select case when late then 40 else 5 end::float8, case when late then 'due' else 'scheduled' end,
      jsonb_build_object('run_at', at.run_at, 'attempts', at.attempts, 'max_attempts', at.max_attempts)
        || coalesce(failed, '{}') || queue.why_asleep(why_causes.id, at.run_at) || queue.why_overlapped(why_causes.id, at.system), where_;
  elsif at.state = 'parked' then
    return query
    select case when late then 40 else 5 end::float8, case when late then 'due' else 'parked' end,
      jsonb_build_object('run_at', p.run_at, 'since', p.since, 'signals', p.names) || coalesce((
        select jsonb_build_object('mapped',
          jsonb_agg(format('%s of %s of `%s` have finished', g.completed + g.dead + g.cancelled, g.total, g.name) order by g.name))
        from queue.gather g
        where g.parent = why_causes.id and queue.join_name(g.name) = any (p.names)
        having count(*) > 0), '{}') || coalesce(queue.why_joined(p.id, p.names), '{}') || coalesce((
        select jsonb_build_object('parents',
          jsonb_agg(jsonb_build_object('name', e.name, 'id', e.source::text, 'state', e.state, 'on_dead', e.on_dead) order by e.source))
        from (
          select n.name, e.source, e.on_dead, queue.state_of(e.source) as state
          from queue.edge e
          join queue.node n on n.id = e.source
          where e.target = p.id
          order by e.source
          limit 100
        ) e
        having count(*) > 0), '{}'), where_
    from queue.parked p
    where p.id = why_causes.id;
  elsif at.state = 'blocked' then
    return query
    select case when b.facts ? 'head' then 5 else 40 end::float8, case when b.facts ? 'head' then 'blocked' else 'key_free' end, b.facts, where_
    from (select queue.why_behind(at.key, (
      select b.seq from queue.blocked b where b.key = at.key and b.id = why_causes.id), 10000) as facts) b;
  else
    return query select l.rank, l.kind, l.facts, where_ from queue.why_limited(why_causes.id, at.queue, at.stored) l;
    return query select t.rank, t.kind, t.facts, where_
    from queue.why_turn(why_causes.id, at.queue, at.stored, at.priority, at.plain, at.lane, at.seq,
      (select r.fair_id from queue.ready r where r.lane = at.lane and r.seq = at.seq), at.crashes,
      servers = 0 or exists (select from queue.why_paused(at.queue, at.stored))) t;
    return query select 90::float8, 'nothing', jsonb_build_object('waited_ms', where_ -> 'waited_ms', 'servers', servers), where_;
  end if;
end
$$;

-- Returns those rows of the leases `tokens` and the jobs `ids` that another transaction has locked. Also returns the session that holds
-- the lock, unless several transactions or a savepoint hold it. Never waits. Locks all rows that it does not return, until the end of the
-- caller's transaction. SECURITY DEFINER, because a worker has no privilege to update jobs and keys.
create function queue.locked_rows(tokens uuid[], ids bigint[])
  returns table (relation text, token uuid, job bigint, pid integer, role text, application text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  keys    bigint[] := array(select j.key from queue.job j where j.id = any (locked_rows.ids) and j.key is not null);
  looked  record;
begin
  for looked in
    select v.at, v.token, v.job, v.is_meant
    from (values
      ('queue.lease'::regclass, 't.token', 'null::bigint', 't.token = any ($1)'),
      ('queue.job', 'null::uuid', 't.id', 't.id = any ($2)'),
      ('queue.active_key', 'null::uuid', 't.id', 't.key = any ($3) and t.id = any ($2)'),
      ('queue.failure', 'null::uuid', 't.id', 't.id = any ($2)'),
      ('queue.progress', 'null::uuid', 't.id', 't.id = any ($2)'),
      ('queue.step', 'null::uuid', 't.id', 't.id = any ($2)'),
      ('queue.signal', 'null::uuid', 't.id', 't.id = any ($2)'),
      ('queue.child', 'null::uuid', 't.parent', 't.parent = any ($2)'),
      ('queue.gather', 'null::uuid', 't.parent', 't.parent = any ($2)')
    ) v (at, token, job, is_meant)
  loop
    return query execute format(
      'with free as materialized (select t.ctid as at from %1$s t where %4$s for update skip locked)
      select distinct on (2, 3) %5$L, %2$s, %3$s, a.pid, a.usename::text, a.application_name
      from %1$s t left join pg_stat_activity a on a.backend_xid = t.xmax
      where %4$s and t.ctid not in (select f.at from free f)',
      looked.at, looked.token, looked.job, looked.is_meant, (select c.relname from pg_class c where c.oid = looked.at))
    using locked_rows.tokens, locked_rows.ids, keys;
  end loop;
end
$$;

-- Returns the ids in `jobs` that have a row in the table `relation`. Returns all ids in `jobs` if another session has locked the table
-- for longer than lock_timeout.
create function queue.ids_in(relation regclass, jobs bigint[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  found_ bigint[];
begin
  execute format('select array(select t.id from %s t where t.id = any ($1))', relation) into found_ using jobs;
  return found_;
exception when lock_not_available then
  return jobs;
end
$$;

-- queue.why, for clients in any language. Each cause is a row with its kind, its facts and a sentence. The most likely cause comes
-- first. The result has at least one row. docs/WHY.md documents each kind and the remedy.
--
-- The following functions run with the caller's rights. They return only those details of other sessions that the caller may see. The
-- existence of a session is always visible.

-- Returns the sessions in `sessions` with their visible details, or null if all are omitted. Omits sessions that have ended, and sessions
-- whose transaction is younger than `moment`, because the transaction of a claim or a verdict ends within this time. A session whose
-- transaction is hidden from the caller is returned unless it belongs to a worker. With `before`, returns only sessions whose transaction
-- had begun by this time.
create function queue.why_sessions(sessions jsonb, moment interval default '1 s', before timestamptz default 'infinity') returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_agg(s.session || coalesce(a.facts, '{}'))
    -- The list is null if the session ended before the facts were read.
    from jsonb_array_elements(case jsonb_typeof(why_sessions.sessions) when 'array' then why_sessions.sessions else '[]' end) s (session)
    left join lateral (
      select jsonb_strip_nulls(jsonb_build_object(
          'role', a.usename, 'application', a.application_name, 'state', a.state, 'since', a.xact_start, 'visible', a.state is not null,
          'own', nullif(a.pid = pg_backend_pid(), false),
          'waits_for', case when a.wait_event_type = 'Lock' then to_jsonb(nullif(array_remove(pg_blocking_pids(a.pid), 0), '{}')) end)) as facts,
        case when a.state is not null then a.xact_start <= clock_timestamp() - why_sessions.moment
          else a.application_name not like 'queue-worker%' end as stays,
        coalesce(a.xact_start <= why_sessions.before, true) as has_begun
      from pg_stat_activity a
      where a.pid = (s.session ->> 'pid')::integer
    ) a on true
    where case when s.session ? 'prepared' then (s.session ->> 'since')::timestamptz <= why_sessions.before else a.stays and a.has_begun end
  );
end
$$;

-- Returns the transactions and replication slots that have prevented vacuum from removing dead rows for longer than `span`, or null if
-- there are none. For slots, and for transactions with a hidden start time, the limit is an age of 100,000 transactions.
create function queue.why_snapshots(span interval) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_build_object('sessions', jsonb_agg(o.session), 'dead', pg_stat_get_dead_tuples('queue.ready'::regclass))
    from (
      (select jsonb_strip_nulls(jsonb_build_object(
          'pid', a.pid, 'role', a.usename, 'application', a.application_name, 'state', a.state, 'since', a.xact_start, 'visible', a.state is not null,
          'own', nullif(a.pid = pg_backend_pid(), false))) as session
      from pg_stat_activity a
      where a.datname = current_database() and coalesce(a.backend_type, 'client backend') = 'client backend'
        and (a.backend_xmin is not null or a.backend_xid is not null)
        and case when a.state is null then age(coalesce(a.backend_xmin, a.backend_xid)) > 100000
          else a.xact_start < clock_timestamp() - why_snapshots.span end
      order by a.xact_start nulls last
      limit 3)
      union all
      (select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared, 'visible', true)
      from pg_prepared_xacts p
      where p.database = current_database() and p.prepared < clock_timestamp() - why_snapshots.span
      order by p.prepared
      limit 3)
      union all
      (select jsonb_build_object('slot', r.slot_name, 'visible', true)
      from pg_replication_slots r
      where r.xmin is not null and age(r.xmin) > 100000
      limit 3)
    ) o
    having count(*) > 0
  );
end
$$;

-- Returns the sessions that hold or await a lock in one of the `modes` on the store's tables, or null if there are none. The default is
-- the only mode that also blocks readers. Never waits.
create function queue.why_table_locked(modes text[] default '{AccessExclusiveLock}') returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_build_object('tables', jsonb_agg(distinct c.relname),
      'sessions', coalesce(queue.why_sessions(jsonb_agg(distinct queue.why_holder(l.pid, l.virtualtransaction)), '0 s'), '[]'))
    from pg_locks l
    join pg_class c on c.oid = l.relation
    where l.locktype = 'relation' and l.mode = any (why_table_locked.modes) and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and c.relnamespace = (select r.relnamespace from pg_class r where r.oid = 'queue.job'::regclass)
      -- Excludes autovacuum, which yields to waiting sessions.
      and not exists (select from pg_stat_activity a where a.pid = l.pid and a.usesysid is null)
    having count(*) > 0
  );
end
$$;

-- Returns a sentence that describes a cause.
create function queue.why_text(kind text, facts jsonb, job jsonb) returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  who  text := (
    select string_agg(case
      when s ? 'prepared' then format('prepared transaction %L', s ->> 'prepared')
      when s ? 'slot' then format('replication slot %L', s ->> 'slot')
      else format('session %s (%s)', s ->> 'pid', coalesce(nullif(s ->> 'application', ''), s ->> 'role')) end, ', ')
    from jsonb_array_elements(facts -> 'sessions') s
  );
  name text := coalesce(facts ->> 'name', 'a deleted worker');
begin
  return case kind
    when 'no_such_job' then coalesce('not there, or not committed yet: ' || who || ' has enqueued jobs without committing yet',
      'there is no such job: never enqueued here, rolled back, or finished and not kept')
    when 'table_locked' then format('%s has tables of the store locked: jobs can be neither read nor claimed', coalesce(who, 'another session'))
    when 'completed' then 'it has completed'
    when 'cancelled' then 'it was cancelled'
    when 'expired' then 'it expired: no attempt started in time'
    when 'dead' then 'it is dead: it has no attempts left, or failed permanently'
    when 'running' then format('%s has it', name)
    when 'cancelling' then format('%s has it, and its handler was notified', name)
    when 'silent_worker' then format('%s has it and is silent: another worker recovers it', name)
    when 'lease_locked' then format('%s has its lease locked', who)
    when 'scheduled' then case
      when job ->> 'job_type' = 'tenant:move' then 'it holds its ordering key while a tenant moves to this store, and is cancelled afterwards'
      when facts ? 'sleep' then format('it sleeps until %s (%s)', facts ->> 'run_at', facts ->> 'sleep')
      else format('it is due at %s', facts ->> 'run_at') end
    when 'parked' then format('it waits for %s%s', coalesce((
        select string_agg(format('the node %s (job %s, %s)', to_jsonb(p ->> 'name'), p ->> 'id', coalesce(p ->> 'state', 'gone')), ' and ')
        from jsonb_array_elements(facts -> 'parents') p
      ), (
        select string_agg(w.what, ' or ')
        from (
          select format('its child %s (job %s, %s)', to_jsonb(c ->> 'name'), c ->> 'id', c ->> 'state') as what
          from jsonb_array_elements(facts -> 'children') c
          union all
          select case when s.name like '% (join)' then format('the jobs of its map %s', to_jsonb(left(s.name, -7)))
            else format('the signal %s', to_jsonb(s.name)) end
          from jsonb_array_elements_text(facts -> 'signals') s (name)
          where not coalesce(facts -> 'children' @> jsonb_build_array(jsonb_build_object('wait', s.name)), false)
        ) w
      ), 'its turn in the map of a durable job'), coalesce(', until ' || (facts ->> 'run_at'), ''))
    when 'due' then 'it is due, and becomes ready at the next poll of a worker'
    when 'blocked' then case
      when facts ->> 'head_type' = 'tenant:move' then 'a tenant is moving to this store, and jobs of this ordering key in the old store go first'
      else format('job %s of its ordering key, which is %s, goes first', facts ->> 'head', facts ->> 'head_state') end
    when 'key_free' then 'its ordering key is free, and is about to continue'
    when 'past_expiry' then 'its deadline to start has passed: it is about to expire'
    when 'no_worker' then 'no worker is alive'
    when 'unserved' then 'no live worker serves it'
    when 'paused' then format('%s is paused by %s', coalesce('type ' || (facts ->> 'job_type'), 'queue ' || (facts ->> 'queue'), 'everything'),
      facts ->> 'by')
    when 'limit_unknown' then format('limit %s waits until all workers know it', facts ->> 'limit')
    when 'limit_locked' then format('%s has limit %s locked', who, facts ->> 'limit')
    when 'limited' then format('limit %s has no free permit', facts ->> 'limit')
    when 'locked' then format('%s has its entry locked', who)
    when 'suspect' then format('%s processes crashed while they ran it: it is retried apart from others', facts ->> 'crashes')
    when 'starved' then format('%s jobs of higher priority go first', facts ->> 'higher')
    when 'behind' then format('%s jobs are queued before it', facts ->> 'ahead')
    when 'workers_busy' then format('its workers have %s jobs of its queue', facts ->> 'held')
    when 'old_snapshot' then format('%s prevents vacuum from cleaning up', who)
    else 'it is ready, and nothing blocks it'
  end;
end
$$;

-- Returns the causes that keep a job from running, most likely first. `job` contains the state, queue, job_type, version, priority and
-- attempts, or is null if the job does not exist. A session that blocks the job is reported only if its transaction has lasted for at
-- least `moment`. Old snapshots are reported only if they are older than `span`.
create function queue.why(id bigint, span interval default '1 minute', moment interval default '1 s')
  returns table (kind text, message text, facts jsonb, job jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  shut    jsonb := queue.why_table_locked();
  causes  jsonb;
begin
  if shut is null then
    begin
      causes := (select jsonb_agg(to_jsonb(c)) from queue.why_causes(why.id) c);
    exception when lock_not_available then
      shut := coalesce(queue.why_table_locked(), jsonb_build_object('tables', '[]', 'sessions', '[]'));
    end;
  end if;
  if shut is not null then
    causes := jsonb_build_array(jsonb_build_object('rank', 0, 'kind', 'table_locked', 'facts', shut));
  end if;
  return query
  with causes as materialized (
    select c.rank, c.kind, c.facts, c.job from jsonb_to_recordset(causes) c (rank float8, kind text, facts jsonb, job jsonb)
  ), seen as materialized (
    select c.rank, c.kind, c.job,
      case when s.seen is null then c.facts - 'sessions' else c.facts || jsonb_build_object('sessions', s.seen) end as facts
    from causes c
    cross join lateral (
      select case c.kind when 'table_locked' then c.facts -> 'sessions'
        -- A transaction that began after the id was allocated cannot have enqueued the job.
        when 'no_such_job' then queue.why_sessions(c.facts -> 'sessions', '0 s', case
          when (c.facts ->> 'future')::boolean then '-infinity'
          else coalesce((c.facts ->> 'given_at')::timestamptz + interval '1 s', '-infinity') end)
        else queue.why_sessions(c.facts -> 'sessions', why.moment) end as seen
    ) s
    where c.kind in ('no_such_job', 'table_locked') or not c.facts ? 'sessions' or s.seen is not null
  ), answered as (
    select s.rank, s.kind, s.facts, s.job
    from seen s
    where s.kind <> 'nothing' or not exists (select from seen b where b.rank < s.rank)
    union all
    select 95, 'old_snapshot', o.facts, w.job
    from (select c.job from causes c where c.kind = 'nothing') w
    cross join lateral (select queue.why_snapshots(why.span) as facts) o
    where o.facts is not null and not exists (select from seen s where s.rank < 30)
  )
  select a.kind, queue.why_text(a.kind, a.facts, a.job), a.facts, a.job from answered a order by a.rank, a.kind;
end
$$;
