-- Control: what operators and programs do to jobs that wait or run, from any language. Each act is one set-based function over ids (.._all), which
-- returns the ids that it changed and never fails for a job in another state. For one job, see 10_control_one.sql.
--
--   cancel_waiting_all   ready | scheduled | blocked | parked -> done, cancelled, and its ordering key goes on without it
--   cancel_running_all   lease, marked: the worker tells the handler to stop, and the attempt's end is the job's
--   reschedule_all       ready | scheduled -> scheduled, at that time
--   run_now_all          scheduled | parked -> ready
--   set_priority_all     ready | scheduled -> the same in the lane of that priority
--
-- Safe: only what is deleted from ready, scheduled or parked (take_waiting, take_scheduled, take_parked) or from blocked here enters elsewhere. A
-- claim or a promotion that was quicker has deleted the entry, and nothing is found; one that comes later passes over the row that we hold. Entries
-- that others hold are passed over too (SKIP LOCKED): a claim that is about to commit, another operator. Rows are
-- locked in the order of their ids.
--
-- Rows are deleted by where they are: entries are never updated in place, and a plan that joins them by their keys reads a whole table for each
-- job, if the last that was known of it is that it was empty.
--
-- The server resolves names in a body between BEGIN ATOMIC and END when it creates the function; every other function sets its search_path.
-- The server plans each call anew: a plan that was made while a table was empty is a bad one once the table is full.

-- Where in ready those of these jobs are that wait there. A job's place is its id, in its lane or, if it is a suspect that was given back, in
-- the solo twin. Those that have entered ready a second time have an index of their own.
create function queue.ready_places(ids bigint[]) returns table (id bigint, lane bigint, seq bigint, at tid)
  language sql stable
begin atomic
  select r.id, r.lane, r.seq, r.at
  from queue.job j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
  cross join lateral (
    select r.id, r.lane, r.seq, r.ctid as at
    from queue.ready r
    where r.lane = any (array[j.lane, queue.lane_id(l.queue, l.job_type, l.priority, true)]) and r.seq = j.id and r.id = j.id
    offset 0
  ) r
  where j.id = any (ready_places.ids)
  union all
  select r.id, r.lane, r.seq, r.ctid
  from queue.ready r
  where r.id = any (ready_places.ids) and r.seq <> r.id;
end;

-- An entry that was taken; run_at is null if the job was ready.
create type queue.taken as (run_at timestamptz, id bigint, lane bigint, attempts smallint, crashes smallint);

-- scheduled -> the caller, who enters elsewhere what this returns, in the same transaction. If it reads more of these jobs, it does so in its
-- next statement: our snapshot is newer than its own, in which the lane of a job, or that it is the head of its key, may not be there yet.
create function queue.take_scheduled(ids bigint[], fresh boolean default false) returns setof queue.taken
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  return query
  with held as materialized (
    select s.ctid as at
    from queue.scheduled s
    where s.id = any (take_scheduled.ids)
      and (not fresh or s.attempts = 0 and s.crashes = 0)
    order by s.id
    for update skip locked
  )
  delete from queue.scheduled s
  where s.ctid = any (array(select h.at from held h))
  returning s.run_at, s.id, s.lane, s.attempts, s.crashes;
end
$$;

-- parked -> the caller, as take_scheduled.
create function queue.take_parked(ids bigint[]) returns setof queue.taken
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  return query
  with held as materialized (
    select p.ctid as at
    from queue.parked p
    where p.id = any (take_parked.ids)
    order by p.id
    for update skip locked
  )
  delete from queue.parked p
  where p.ctid = any (array(select h.at from held h))
  returning p.run_at, p.id, p.lane, p.attempts, p.crashes;
end
$$;

-- ready | scheduled -> the caller, as take_scheduled; fresh: only those that have not begun. What the first look took is not there for the
-- second; a job that passes from one to the other meanwhile may be missed by both, as one that is claimed.
create function queue.take_waiting(ids bigint[], fresh boolean default false) returns setof queue.taken
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  return query
  with held as materialized (
    select r.ctid as at
    from queue.ready r
    where r.ctid = any (array(select p.at from queue.ready_places(take_waiting.ids) p))
      and (not fresh or r.attempts = 0 and r.crashes = 0)
    order by r.id
    for update of r skip locked
  )
  delete from queue.ready r
  where r.ctid = any (array(select h.at from held h))
  returning null::timestamptz, r.id,
    case when r.line is null then r.lane else queue.twin_of(r.lane) end,
    r.attempts, r.crashes;
  return query select s.* from queue.take_scheduled(take_waiting.ids, take_waiting.fresh) s;
end
$$;

-- The state of one job, null if there is none.
create function queue.state_of(id bigint) returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
begin
  return (select e.state from queue.entry_of(id) e);
end
$$;

-- ready | scheduled | blocked | parked -> done, cancelled, or, of those that have not begun, expired; what is parked has begun. One that is blocked
-- is only taken out of its key's line; the head frees its key.
create function queue.end_waiting(ids bigint[], expired boolean) returns setof bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  taken queue.taken[] := array(select t from queue.take_waiting(end_waiting.ids, end_waiting.expired) t);
  gone  bigint[];
  keys  boolean;
begin
  if not end_waiting.expired then
    taken := taken || array(select t from queue.take_parked(end_waiting.ids) t);
  end if;
  with keyed as materialized (
    select j.id, j.key from queue.job j where j.id = any (end_waiting.ids) and j.key is not null
  ), in_line as materialized (
    select b.ctid as at
    from queue.blocked b
    where b.key = any (array(select distinct k.key from keyed k where k.id not in (select t.id from unnest(taken) t)))
      and b.id = any (end_waiting.ids)
    order by b.id
    for update skip locked
  ), unblocked as materialized (
    delete from queue.blocked b
    where b.ctid = any (array(select i.at from in_line i))
    returning b.id
  ), over as materialized (
    select t.id, t.attempts from unnest(taken) t
    union all
    select u.id, 0::smallint from unblocked u
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select a.ctid from queue.active_key a where a.key = k.key and a.id = k.id)
      from keyed k
      where k.id in (select o.id from over o)
    ))
    returning active_key.key, active_key.seq
  ), hinted as (
    insert into queue.key_hint (key, after)
    select f.key, f.seq
    from freed f
    returning key_hint.key
  ), entered as (
    insert into queue.done (id, finished_at, ran_ms, attempts, cancelled, expired)
    select o.id, now(), 0, o.attempts, true, end_waiting.expired
    from over o
    returning done.id
  )
  select array_agg(e.id), exists (select from hinted) into gone, keys from entered e;
  if keys then
    perform queue.wake_keys();
  end if;
  if cardinality(gone) > 0 then
    perform queue.note_ends(gone);
    if not end_waiting.expired then
      perform queue.cancel_children(gone);
    end if;
    perform queue.tell_waiters();
  end if;
  return query select u.id from unnest(gone) u (id);
end
$$;

-- The same of those that somebody cancels.
create function queue.cancel_waiting_all(ids bigint[]) returns setof bigint
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
begin atomic
  select e.id from queue.end_waiting(cancel_waiting_all.ids, false) e (id);
end;

-- lease, marked: those of the jobs that are running are cancelling from now on. Workers look for it when they are notified, and about every second.
-- While somebody is at work on one of the leases, it marks none and looks again: a settle has one for a moment, an open transaction for longer.
-- After half a second the jobs of such a lease are passed over. A job that a settle has ended meanwhile is not found in the row.
create function queue.cancel_running_all(ids bigint[]) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  marked  bigint[];
begin
  for tries in 1 .. 25 loop
    begin
      with held as materialized (
        select h.token
        from queue.lease h
        where exists (select from unnest(h.ids) u (id) where u.id = any (cancel_running_all.ids))
        for update of h skip locked
      ), changed as (
        update queue.lease l
        set cancelling = array(
          select u.id from unnest(l.cancelling) u (id)
          union
          select u.id from unnest(l.ids) u (id) where u.id = any (cancel_running_all.ids))
        from held h
        where l.token = h.token
        returning l.ids
      )
      select array_agg(u.id) into marked
      from changed c
      cross join lateral unnest(c.ids) u (id)
      where u.id = any (cancel_running_all.ids);
      exit when tries = 25 or not exists (
        select from queue.lease h cross join lateral unnest(h.ids) u (id)
        where u.id = any (cancel_running_all.ids) and u.id <> all (coalesce(marked, '{}')));
      raise sqlstate 'QWAIT';
    exception when sqlstate 'QWAIT' then
      perform pg_sleep(0.02);
    end;
  end loop;
  if cardinality(marked) > 0 then
    perform queue.notify('wake', '!control');
    perform queue.cancel_children(marked);
  end if;
  return query select u.id from unnest(marked) u (id);
end
$$;

-- ready | scheduled -> scheduled, at that time; one that has passed is due at once. Attempts, crashes and the lane stay.
create function queue.reschedule_all(ids bigint[], run_at timestamptz) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  moved bigint[];
begin
  perform queue.check_run_at(reschedule_all.run_at);
  with put_off as (
    insert into queue.scheduled (run_at, id, lane, attempts, crashes)
    select reschedule_all.run_at, t.id, t.lane, t.attempts, t.crashes
    from queue.take_waiting(reschedule_all.ids) t
    returning scheduled.id
  )
  select array_agg(p.id) into moved from put_off p;
  perform queue.wake_for(moved);
  return query select u.id from unnest(moved) u (id);
end
$$;

-- scheduled | parked -> ready: to the end of its lane, as a promotion does. What is parked looks for itself, and is parked again if it still waits.
create function queue.run_now_all(ids bigint[]) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  moved bigint[];
begin
  with entered as (
    insert into queue.ready (lane, seq, id, attempts, crashes)
    select t.lane, queue.next_id(), t.id, t.attempts, t.crashes
    from (
      select s.* from queue.take_scheduled(run_now_all.ids) s
      union all
      select p.* from queue.take_parked(array(
        select u.id
        from unnest(run_now_all.ids) u (id)
        where not exists (select from queue.edge e where e.target = u.id)
          and not exists (
            select from queue.gather_part p
            join queue.gather g on g.parent = p.parent and g.name = p.name
            where p.id = u.id and g.waits)
      )) p
    ) t
    order by t.run_at, t.id
    returning ready.id
  )
  select array_agg(e.id) into moved from entered e;
  perform queue.wake_for(moved);
  return query select u.id from unnest(moved) u (id);
end
$$;

-- ready | scheduled -> the same, in the lane of that priority; solo if it was in a solo one. The job's own row then names that lane, so that
-- retry, recovery, requeue and cancel find the job there: it is written only together with the entry, by whoever took that. A ready job's
-- place is its id, which nobody else takes: it stands where its age puts it, and below a floor it is found within about a second.
create function queue.set_priority_all(ids bigint[], priority integer) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  taken   queue.taken[] := array(select t from queue.take_waiting(set_priority_all.ids) t);
  moved   bigint[];
  wanted  smallint := set_priority_all.priority;
begin
  with off as materialized (
    select t.run_at, t.id, t.lane, t.attempts, t.crashes, l.queue, l.job_type, l.solo
    from unnest(taken) t
    cross join lateral (select l.queue, l.job_type, l.solo from queue.lane l where l.lane = t.lane limit 1) l
  ), target as materialized (
    select k.queue, k.job_type, k.solo, queue.meet_lane(k.queue, k.job_type, wanted, false) as plain,
      case when k.solo then queue.meet_lane(k.queue, k.job_type, wanted, true) end as twin
    from (select distinct o.queue, o.job_type, o.solo from off o) k
  ), moving as materialized (
    select o.run_at, o.id, o.attempts, o.crashes, t.plain, coalesce(t.twin, t.plain) as lane
    from off o
    join target t on t.queue = o.queue and t.job_type = o.job_type and t.solo = o.solo
  ), renamed as (
    update queue.job j
    set lane = m.plain
    from moving m
    where j.id = any (array(select x.id from moving x)) and j.id = m.id
  ), entered as (
    insert into queue.ready (lane, seq, id, attempts, crashes)
    select m.lane, m.id, m.id, m.attempts, m.crashes
    from moving m
    where m.run_at is null
  ), put_off as (
    insert into queue.scheduled (run_at, id, lane, attempts, crashes)
    select m.run_at, m.id, m.lane, m.attempts, m.crashes
    from moving m
    where m.run_at is not null
  )
  select array_agg(m.id) into moved from moving m;
  perform queue.wake_for(moved);
  return query select u.id from unnest(moved) u (id);
end
$$;

-- Wakes workers that sleep and serve the queue of one of these jobs. A statement of its own, after the change: its snapshot is newer.
create function queue.wake_for(ids bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
begin
  if cardinality(ids) > 0 then
    perform queue.wake(q.queue)
    from (
      select distinct l.queue
      from queue.job j
      join queue.lane l on l.lane = j.lane
      where j.id = any (wake_for.ids)
    ) q;
  end if;
end
$$;
