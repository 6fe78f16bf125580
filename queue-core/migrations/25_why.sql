-- Why a job is not running: what stands in its way, the most likely first. The parts are here, each one thing that may; queue.why in 27_answers.sql
-- puts them together, and everything there and here only reads. What a part costs does not grow with what waits or is over: counts end at a
-- number, and go from behind, where entries are not dead.
--
-- Nothing here locks a row, for a claim would pass over it: who has one is told by the number of a transaction that stands in the row itself (xmax),
-- and by who holds the lock on that number.

-- Who holds a lock, by what pg_locks says: a session by its pid, a prepared transaction by its name.
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

-- Who has this row locked, or is deleting it, in a transaction that has not ended: sessions by pid, prepared transactions by name; null if nobody.
-- stands: the row's xmax. What is left there of a transaction that has ended names nobody, and neither does a number that is a transaction's and not
-- this row's locker's, unless that one has rows of the same table.
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
          -- Tables of other databases may have the same number.
          and r.database = (select d.oid from pg_database d where d.datname = current_database())
          and r.mode in ('RowShareLock', 'RowExclusiveLock')
      );
    exit when held is not null or look = 2 or why_held.stands = '0';
    -- Several may share a row: then the number is that of their group.
    begin
      lockers := array(select m.xid from pg_get_multixact_members(why_held.stands) m);
    exception when internal_error then
      exit;
    end;
  end loop;
  return held;
end
$$;

-- The workers that live and serve jobs of this queue that are stored under this name of their type. One that is shutting down serves none.
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

-- Why no worker serves such jobs: one row if none does, else none. last: who was the last to, if its row is still there.
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

-- How many jobs of a plain lane have completed of late: so many a second, and when the last one did. Reads the newest rows of the history, whatever
-- their lane; null where these tell nothing.
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

-- Ready jobs that go first: before it in its lane (of its line, if it stands in one), and of higher priorities of its queue, as far as those may
-- begin and a worker that serves it serves them too. Each counted up to one more than most. held: jobs of its queue that these workers have, and
-- since when.
create function queue.why_ahead(
  queue text, stored text, priority integer, lane bigint, seq bigint, line bigint, most integer,
  out ahead bigint, out higher bigint, out held bigint, out held_since timestamptz
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  begins  bigint := coalesce((select max(p.seq) from queue.passed() p where p.lane = why_ahead.lane), 0);
begin
  if why_ahead.line is null then
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
      where r.lane = why_ahead.lane and r.line = why_ahead.line and r.seq < why_ahead.seq
      order by r.seq desc
      limit why_ahead.most + 1
    ) r;
  end if;
  with full_ as materialized (
    select b.name
    from queue.bound_in_force b
    cross join lateral queue.room(array[b.gate], null) r
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
    left join queue.passed() p on p.lane = b.lane
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

-- The first of an ordering key, behind which a job waits, and how many stand between the two, counted up to most; a row without a head if the key
-- is free.
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
    'head_worker', head.worker, 'head_cancelling', head.cancelling, 'between', least(n, why_behind.most), 'partial', n > why_behind.most));
end
$$;

-- What is known of a job that is not there: when its id was given out by its own account, how old the oldest and the newest jobs are, who has
-- enqueued jobs and not committed, and which other stores there are.
create function queue.why_absent(id bigint) returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return jsonb_strip_nulls(jsonb_build_object(
    -- What no clock has shown is no time of ours.
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
