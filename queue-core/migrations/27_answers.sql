-- Why a job is not running, for every language: queue.why. Each cause is a row with its kind, the facts that make it one, and a sentence; the most
-- likely is the first, and there always is one. docs/WHY.md says what each kind means, and what to do about it.
--
-- It has its caller's rights: so of other sessions it says what that one may see of them, which is always that they are there.

-- These sessions, with what may be seen of them: without those that are gone, and those that will be in a moment, as a claim or a verdict. Null if
-- none is left. Whose transaction cannot be seen is taken for one that stays, unless it is a worker's. before: only those that had begun by then.
create function queue.why_sessions(sessions jsonb, moment interval default '1 s', before timestamptz default 'infinity') returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_agg(s.session || coalesce(a.facts, '{}'))
    -- Who was there when the facts were read may be gone, and then nobody was found.
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

-- Who holds back what vacuum may clean up, in this database, for longer than that: null if nobody does.
create function queue.why_old(span interval) returns jsonb
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
          else a.xact_start < clock_timestamp() - why_old.span end
      order by a.xact_start nulls last
      limit 3)
      union all
      (select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared, 'visible', true)
      from pg_prepared_xacts p
      where p.database = current_database() and p.prepared < clock_timestamp() - why_old.span
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

-- Sessions that have tables of the store locked in one of these modes, or wait for that; null if there are none. The default mode keeps readers
-- waiting, too. Never waits.
create function queue.why_shut(modes text[] default '{AccessExclusiveLock}') returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select jsonb_build_object('tables', jsonb_agg(distinct c.relname),
      'sessions', coalesce(queue.why_sessions(jsonb_agg(distinct queue.why_holder(l.pid, l.virtualtransaction)), '0 s'), '[]'))
    from pg_locks l
    join pg_class c on c.oid = l.relation
    where l.locktype = 'relation' and l.mode = any (why_shut.modes) and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and c.relnamespace = (select r.relnamespace from pg_class r where r.oid = 'queue.job'::regclass)
      -- An autovacuum gives way to whoever waits for it. It is nobody's session.
      and not exists (select from pg_stat_activity a where a.pid = l.pid and a.usesysid is null)
    having count(*) > 0
  );
end
$$;

-- A cause in one plain sentence.
create function queue.why_says(kind text, facts jsonb, job jsonb) returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  who  text := (
    select string_agg(coalesce(format('session %s (%s)', s ->> 'pid', coalesce(nullif(s ->> 'application', ''), s ->> 'role')),
      format('prepared transaction %L', s ->> 'prepared'), format('replication slot %L', s ->> 'slot')), ', ')
    from jsonb_array_elements(facts -> 'sessions') s
  );
  name text := coalesce(facts ->> 'name', 'a worker that is gone');
begin
  return case kind
    when 'no_such_job' then coalesce('not there, or not committed yet: ' || who || ' has enqueued jobs and not committed',
      'there is no such job: never enqueued here, rolled back, or over and not kept')
    when 'table_locked' then format('%s has tables of the store locked: nobody can read or claim', coalesce(who, 'somebody'))
    when 'completed' then 'it has completed'
    when 'cancelled' then 'it was cancelled'
    when 'expired' then 'it had not begun in time, and is over'
    when 'dead' then 'it is dead: its attempts have run out, or it failed for good'
    when 'running' then format('%s has it', name)
    when 'cancelling' then format('%s has it, and its handler was told to end', name)
    when 'silent_worker' then format('%s has it and is silent: others take it back', name)
    when 'lease_locked' then format('%s has its lease locked', who)
    when 'scheduled' then format('it is due at %s', facts ->> 'run_at')
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
      ), 'its turn among the jobs that a durable job has mapped'), coalesce(', until ' || (facts ->> 'run_at'), ''))
    when 'due' then 'it is due, and is about to be made ready'
    when 'blocked' then format('job %s of its ordering key, which is %s, goes first', facts ->> 'head', facts ->> 'head_state')
    when 'key_free' then 'its ordering key is free, and is about to go on'
    when 'past_expiry' then 'its time to begin has passed: it will be expired'
    when 'no_worker' then 'no worker lives'
    when 'unserved' then 'no worker that lives serves it'
    when 'paused' then format('%s is paused by %s', coalesce('type ' || (facts ->> 'job_type'), 'queue ' || (facts ->> 'queue'), 'everything'),
      facts ->> 'by')
    when 'limit_unknown' then format('limit %s waits until all workers know it', facts ->> 'limit')
    when 'limit_locked' then format('%s has limit %s locked', who, facts ->> 'limit')
    when 'limited' then format('limit %s has no room', facts ->> 'limit')
    when 'locked' then format('%s has its entry locked', who)
    when 'suspect' then format('%s processes ended while they ran it: it is tried apart from others', facts ->> 'crashes')
    when 'starved' then format('%s jobs of higher priority go first', facts ->> 'higher')
    when 'behind' then format('%s jobs stand before it', facts ->> 'ahead')
    when 'workers_busy' then format('its workers have %s jobs of its queue', facts ->> 'held')
    when 'old_snapshot' then format('%s keeps vacuum from cleaning up', who)
    else 'it is ready, and nothing is in its way'
  end;
end
$$;

-- Why this job is not running: the most likely cause first. job says where it is: state, queue, job_type, version, priority, attempts; null if it is
-- not there. A session that has been in a transaction for less than a moment is no cause; an old snapshot is one from span on.
create function queue.why(id bigint, span interval default '1 minute', moment interval default '1 s')
  returns table (kind text, says text, facts jsonb, job jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '200ms'
as $$
#variable_conflict use_column
declare
  shut    jsonb := queue.why_shut();
  causes  jsonb;
begin
  if shut is null then
    begin
      causes := (select jsonb_agg(to_jsonb(c)) from queue.why_causes(why.id) c);
    exception when lock_not_available then
      shut := coalesce(queue.why_shut(), jsonb_build_object('tables', '[]', 'sessions', '[]'));
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
        -- Who has begun after the id was given out has not enqueued it.
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
    cross join lateral (select queue.why_old(why.span) as facts) o
    where o.facts is not null and not exists (select from seen s where s.rank < 30)
  )
  select a.kind, queue.why_says(a.kind, a.facts, a.job), a.facts, a.job from answered a order by a.rank, a.kind;
end
$$;
