-- Why a job is not running: the facts of the store, of one snapshot, put together of the parts in 25_why.sql. queue.why_causes is a door, for whoever
-- may not read the tables; no payload is among what it says. queue.why in 27_answers.sql asks it.

-- What is known of a job that is over: how, and why its last attempts failed, the latest last.
create function queue.why_over(id bigint) returns jsonb
  language sql stable
begin atomic
  select jsonb_strip_nulls(jsonb_build_object(
    'finished_at', e.finished_at, 'ran_ms', e.ran_ms, 'attempts', e.attempts, 'crashes', nullif(e.crashes, 0), 'error', left(e.error, 500),
    'failures', (
      select jsonb_agg(jsonb_build_object('attempt', f.attempt, 'at', f.at, 'ran_ms', f.ran_ms, 'error', left(f.error, 500)) order by f.at, f.attempt)
      from (
        select f.attempt, f.at, f.ran_ms, f.error
        from queue.failure f
        where f.id = why_over.id
        order by f.at desc, f.attempt desc
        limit 20
      ) f
    )))
  from queue.end_of(why_over.id) e;
end;

-- Who has a job that runs, for how long, and what it says of itself.
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

-- The limits that have no room for a ready job, that wait until workers know them, or whose gate somebody has locked.
create function queue.why_limited(id bigint, queue text, stored text) returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
  return query
  select case when w.awaits > 0 then 29 else 30 end::float8, case when w.awaits > 0 then 'limit_unknown' else 'limited' end,
    jsonb_strip_nulls(jsonb_build_object(
      'limit', w.name, 'keyed', w.keyed, 'line', case when w.keyed then w.line::text end, 'key', w.key, 'used', w.used,
      'concurrency', w.concurrency, 'starts', b.starts, 'period_ms', b.period_ms, 'next_ms', w.wait_ms, 'by_operator', b.by_operator,
      'reason', b.reason, 'since', b.since, 'set_by', b.set_by,
      'awaits', (
        select jsonb_agg(jsonb_build_object('name', a.name, 'host', a.host, 'pid', a.pid)) from queue.limit_awaits(b.number) a where w.awaits > 0
      )))
  from queue.waits_for(why_limited.id) w
  join queue.bound_in_force b on b.name = w.name
  union all
  -- Claims that wait for it have entries locked.
  select 24, 'limit_locked', jsonb_build_object('limit', b.name, 'sessions', s.held)
  from queue.bound_in_force b
  join queue.gate g on g.gate = b.gate
  cross join lateral (select queue.why_held('queue.gate', g.xmax) as held) s
  where queue.covers(b.name, why_limited.queue, why_limited.stored) and s.held is not null;
end
$$;

-- The pauses that cover jobs of this queue that are stored under this name of their type.
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

-- What keeps a ready job that others are in front of, or that is under suspicion, from its turn.
create function queue.why_turn(
  id bigint, queue text, stored text, priority integer, plain bigint, lane bigint, seq bigint, line bigint, crashes integer, is_stopped boolean
)
  returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  most    constant integer := 10000;
  solo    boolean := lane not in (plain, queue.twin_of(plain));
  turn    record;
  pace    record;
begin
  turn := queue.why_ahead(why_turn.queue, why_turn.stored, why_turn.priority, why_turn.lane, why_turn.seq, why_turn.line, most);
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
      'ahead', least(turn.ahead, most), 'partial', turn.ahead > most, 'in_line', why_turn.line is not null, 'per_s', pace.per_s,
      'wait_ms', case when turn.ahead <= most and why_turn.line is null then 1000 * turn.ahead / pace.per_s end,
      'held', turn.held, 'held_since', turn.held_since));
  elsif turn.held > 0 and clock_timestamp() > queue.enqueued_at(why_turn.seq) + interval '3 s' then
    return query select 80::float8, 'workers_busy', jsonb_build_object('held', turn.held, 'held_since', turn.held_since);
  end if;
end
$$;

-- Facts of a job that waits: whatever its state, whether any worker serves it, whether it is paused or too late, and who has its entry locked.
create function queue.why_waiting(
  id bigint, queue text, stored text, state text, late boolean, system jsonb, key bigint, lane bigint, seq bigint
)
  returns table (rank float8, kind text, facts jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  -- What keeps it from running once it is ready comes behind what keeps it from that.
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

-- The children whose ends a parked job waits for, each with what its wait is called, where it is, or what it came to: null if there are none.
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

-- The facts of the store, each cause with a rank, the lowest first, and beside each where the job is: null if it is not there. Of a ready job
-- the last is that nothing is in its way, which is so if no other comes before.
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
  -- Whether only a worker that looks is missing before it is ready.
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
    return query select 0::float8, at.state, queue.why_over(why_causes.id), where_;
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
        || coalesce(failed, '{}') || queue.why_overlapped(why_causes.id, at.system), where_;
  elsif at.state = 'parked' then
    return query
    select case when late then 40 else 5 end::float8, case when late then 'due' else 'parked' end,
      jsonb_build_object('run_at', p.run_at, 'since', p.since, 'signals', p.names) || coalesce((
        select jsonb_build_object('mapped',
          jsonb_agg(format('%s of %s of `%s` are over', g.completed + g.dead + g.cancelled, g.total, g.name) order by g.name))
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
      (select r.line from queue.ready r where r.lane = at.lane and r.seq = at.seq), at.crashes,
      servers = 0 or exists (select from queue.why_paused(at.queue, at.stored))) t;
    return query select 90::float8, 'nothing', jsonb_build_object('waited_ms', where_ -> 'waited_ms', 'servers', servers), where_;
  end if;
end
$$;

-- Rows of these leases and these jobs that another transaction has locked, and whose session that is, if one alone has it. Never waits, and
-- keeps no lock. With its owner's rights, for a worker updates no job and no key.
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

-- Those of these jobs that are in this table: all, if another session has it locked for longer than lock_timeout.
create function queue.those_in(relation regclass, jobs bigint[]) returns bigint[]
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
