-- Control: what operators and programs do to jobs that wait or run, from any language. Each act is one set-based function over ids (.._all), which
-- returns the ids that it changed and never fails for a job in another state. Acts by their names, and on one job, come last.
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

-- What is done to jobs that are over. As above, rows which others hold are passed over.
--
--   requeue_all   dead -> ready | blocked
--   reopen        done | done_many -> ready | blocked
--   discard_all   dead -> nothing

-- Locks ordering keys, by their stripes, until the end of the transaction; returns those that were to be had. All together it waits for a second
-- at most: a key is locked by who enqueues under it, until that one's transaction ends.
create function queue.lock_some_keys(stripes bigint[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '500ms'
as $$
declare
  give_up timestamptz := clock_timestamp() + interval '500 ms';
  had     bigint[] := '{}';
  stripe  bigint;
begin
  for stripe in select distinct s from unnest(stripes) s order by s loop
    begin
      if clock_timestamp() >= give_up then
        set local lock_timeout = '1ms';
      end if;
      perform queue.lock_key(stripe);
      had := had || stripe;
    exception when lock_not_available then
      null;
    end;
  end loop;
  return had;
end
$$;

-- Another job that holds the uniqueness key of this one; null if none does.
create function queue.key_holder(id bigint) returns bigint
  language sql stable
begin atomic
  select u.id
  from queue.job j
  join queue.unique_key u on u.hash = queue.unique_of(j.system)
  where j.id = key_holder.id and u.id <> j.id and queue.holds(u.held, u.until, queue.state_of(u.id));
end;

-- Takes the uniqueness keys of these jobs, which are to live again, and returns the jobs without those whose key another job holds, or is about to
-- take: that is waited for as by lock_some_keys. A key that was held for a time is not taken again.
create function queue.retake_keys(ids bigint[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '500ms'
as $$
declare
  give_up timestamptz := clock_timestamp() + interval '500 ms';
  kept    bigint[] := retake_keys.ids;
  taker   record;
  holder  queue.unique_key;
  last    uuid;
begin
  for taker in
    select j.id, queue.unique_of(j.system) as hash
    from queue.job j
    where j.id = any (retake_keys.ids) and queue.unique_of(j.system) is not null
    order by hash, j.id
  loop
    begin
      if clock_timestamp() >= give_up then
        set local lock_timeout = '1ms';
      end if;
      insert into queue.unique_key (hash, id, held) values (taker.hash, taker.id, 'live') on conflict do nothing;
      if not found then
        select u.* into holder from queue.unique_key u where u.hash = taker.hash for update;
        if taker.hash = last or holder.id <> taker.id and queue.holds(holder.held, holder.until, queue.state_of(holder.id)) then
          kept := array_remove(kept, taker.id);
        elsif holder.held <> 'until' then
          update queue.unique_key u set id = taker.id where u.hash = taker.hash;
        end if;
      end if;
    exception when lock_not_available then
      kept := array_remove(kept, taker.id);
    end;
    last := taker.hash;
  end loop;
  return kept;
end
$$;

-- dead -> ready | blocked: those of these jobs that are dead letters, to the end of their own lanes with no attempt and no crash; returns them.
-- Their failures stay.
-- Safe: only what is deleted from dead here enters ready. A second operator passes over the row, or finds it gone, as does a discard; a claim sees
-- the job at our commit. Rows are locked in the order of their ids. A job whose uniqueness key another holds stays dead, unless it is forced to live
-- beside it. A job under suspicion leaves its solo lane: the operator says that it is
-- mended. One that holds up its ordering key keeps its place; one whose key went on without it goes to the end of the key's line, under the key's
-- lock, and stays dead if that is not to be had.
create function queue.requeue_all(ids bigint[], force boolean default false) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  back  bigint[];
  keys  boolean;
  late  bigint[] := array(
    select distinct j.key & 1023
    from queue.dead d
    cross join lateral (select j.key from queue.job j where j.id = d.id offset 0) j
    where d.id = any (requeue_all.ids) and j.key is not null
      and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id));
begin
  late := queue.lock_some_keys(late);
  if not force then
    ids := queue.retake_keys(requeue_all.ids);
  end if;
  with held as materialized (
    select d.id
    from queue.dead d
    where d.id = any (requeue_all.ids)
    order by d.id
    for update skip locked
  ), risen as materialized (
    delete from queue.dead d
    using held h
    cross join lateral (select j.lane, j.key from queue.job j where j.id = h.id offset 0) j
    where d.id = h.id
      and (j.key is null or j.key & 1023 = any (late) or exists (select from queue.active_key a where a.key = j.key and a.id = d.id))
    returning d.id, j.lane, j.key,
      j.key is not null and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id) as is_late
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select r.lane, queue.next_id(), r.id
    from risen r
    where not r.is_late
    order by r.id
  ), queued_up as (
    insert into queue.blocked (key, seq, id, lane)
    select r.key, nextval('queue.key_seq'), r.id, r.lane
    from (select r.* from risen r where r.is_late order by r.id) r
  ), hinted as (
    insert into queue.key_hint (key)
    select distinct r.key
    from risen r
    where r.is_late
  )
  select array_agg(r.id), bool_or(r.is_late) into back, keys from risen r;
  perform queue.forget_expiry(back);
  perform queue.ask_children(back);
  perform queue.wake_for(back);
  if keys then
    perform queue.wake_keys();
  end if;
  return query select u.id from unnest(back) u (id);
end
$$;

-- done | done_many -> ready | blocked: the job, if it is completed, cancelled or expired, to the end of its lane or ordering key with no attempt;
-- says whether it was. As requeue_all it leaves one whose uniqueness key another holds. Its failures stay, its output goes, and its checkpoint with
-- it: the job is to begin anew.
-- Safe: it enters ready only if its done row is deleted here, or its id is taken out of its done_many row. A row that another has locked is passed
-- over, and so is a job whose key is not to be had in time: the caller looks, sees it completed and tries again. If between two looks the row has
-- become one of this job alone, neither branch takes it, and the same follows. Pruning deletes the same row before it deletes the payload, so one
-- of us two gets neither.
create function queue.reopen(id bigint, force boolean default false) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  came  bigint[];
  keys  boolean;
  line  bigint := (select j.key from queue.job j where j.id = reopen.id);
begin
  if line is not null and cardinality(queue.lock_some_keys(array[line & 1023])) = 0 then
    return false;
  end if;
  if not force and cardinality(queue.retake_keys(array[reopen.id])) = 0 then
    return false;
  end if;
  perform from queue.done d where d.id = reopen.id for update skip locked;
  if not found then
    perform from queue.done_many m
    where m.first_id between (reopen.id >> 33) << 33 and reopen.id and m.last_id >= reopen.id and reopen.id = any (m.ids)
    for update skip locked;
  end if;
  if not found then
    return false;
  end if;
  with reopened as materialized (
    delete from queue.done d
    where d.id = reopen.id
    returning d.id
  ), struck as materialized (
    update queue.done_many m
    set ids = array_remove(m.ids, reopen.id),
      first_id = (array_remove(m.ids, reopen.id))[1],
      last_id = (array_remove(m.ids, reopen.id))[cardinality(m.ids) - 1]
    where m.first_id between (reopen.id >> 33) << 33 and reopen.id and m.last_id >= reopen.id and reopen.id = any (m.ids) and cardinality(m.ids) > 1
    returning reopen.id as id
  ), emptied as materialized (
    delete from queue.done_many m
    where m.first_id = reopen.id and m.last_id = reopen.id
    returning m.first_id as id
  ), back as materialized (
    select j.id, j.lane, j.key
    from queue.job j
    where j.id = reopen.id and exists (select from reopened union all select from struck union all select from emptied)
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select b.lane, queue.next_id(), b.id
    from back b
    where b.key is null
  ), queued_up as (
    insert into queue.blocked (key, seq, id, lane)
    select b.key, nextval('queue.key_seq'), b.id, b.lane
    from back b
    where b.key is not null
  ), hinted as (
    insert into queue.key_hint (key)
    select b.key
    from back b
    where b.key is not null
  ), forgotten as (
    delete from queue.progress p
    where p.id = any (array(select b.id from back b))
  ), undone as (
    delete from queue.step s
    where s.id = any (array(select b.id from back b))
  ), unheard as (
    delete from queue.signal s
    where s.id = any (array(select b.id from back b))
  )
  select array_agg(b.id), bool_or(b.key is not null) into came, keys from back b;
  perform queue.forget_children(came);
  perform queue.forget_gathers(came);
  perform queue.forget_expiry(came);
  perform queue.wake_for(came);
  if keys then
    perform queue.wake_keys();
  end if;
  return came is not null;
end
$$;

-- dead -> nothing: those of these jobs that are dead letters, with payload and failures; returns them.
-- Safe: only a job whose dead row is deleted here loses its payload. A second operator passes over the row, or finds it gone, as does a requeue.
-- Rows are locked in the order of their ids. One that held up its ordering key frees it.
create function queue.discard_all(ids bigint[]) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  discarded bigint[];
  keys  boolean;
begin
  with held as materialized (
    select d.id
    from queue.dead d
    where d.id = any (discard_all.ids)
    order by d.id
    for update skip locked
  ), gone as materialized (
    delete from queue.dead d
    using held h
    where d.id = h.id
    returning d.id
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = g.id) and k.id = g.id)
      from gone g
    ))
    returning key, seq
  ), hinted as (
    insert into queue.key_hint (key, after)
    select f.key, f.seq
    from freed f
    returning key_hint.key
  ), payloads as (
    delete from queue.job j
    where j.id = any (array(select g.id from gone g))
  ), steps as (
    delete from queue.step s
    where s.id = any (array(select g.id from gone g))
  ), signals as (
    delete from queue.signal s
    where s.id = any (array(select g.id from gone g))
  ), failures as (
    delete from queue.failure f
    where f.id = any (array(select g.id from gone g))
  )
  select array_agg(g.id), exists (select from hinted) into discarded, keys from gone g;
  if keys then
    perform queue.wake_keys();
  end if;
  perform queue.forget_children(discarded);
  perform queue.forget_gathers(discarded);
  if cardinality(discarded) > 0 then
    perform queue.note_ends(array(select n.id from queue.node n where n.id = any (discarded)), 'gone');
    perform queue.tell_waiters();
  end if;
  return query select u.id from unnest(discarded) u (id);
end
$$;

-- The acts by their names, on many jobs and on one. On many, what cannot be done is passed over. On one it is refused: SQLSTATE P0002 if there is
-- no such job, 55P03 if another transaction has it locked, else 55000; DETAIL is JSON: the job, the state it is in, the states wanted, what cannot be
-- done, and the job that holds its uniqueness key, if that is why.

-- Does an act to those of these jobs to which it can be done now; returns them and what became of them.
create function queue.act_on_all(ids bigint[], act text, run_at timestamptz default null, priority integer default null)
  returns table (id bigint, became text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  changed bigint;
begin
  case act
    when 'cancel' then
      return query select c.id, 'cancelled' from queue.cancel_waiting_all(act_on_all.ids) c (id);
      get diagnostics changed = row_count;
      if changed < cardinality(act_on_all.ids) then
        return query select c.id, 'cancelling' from queue.cancel_running_all(act_on_all.ids) c (id);
      end if;
    when 'reschedule' then
      return query select c.id, 'rescheduled' from queue.reschedule_all(act_on_all.ids, act_on_all.run_at) c (id);
    when 'snooze' then
      return query select c.id, 'snoozed' from queue.reschedule_all(act_on_all.ids, act_on_all.run_at) c (id);
    when 'run_now' then
      return query select c.id, 'ready' from queue.run_now_all(act_on_all.ids) c (id);
    when 'set_priority' then
      return query select c.id, 'changed' from queue.set_priority_all(act_on_all.ids, act_on_all.priority) c (id);
    when 'requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(act_on_all.ids) c (id);
    when 'force_requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(act_on_all.ids, force => true) c (id);
    when 'discard' then
      return query select c.id, 'discarded' from queue.discard_all(act_on_all.ids) c (id);
    else
      raise invalid_parameter_value using message = format('there is no act %s', to_json(act_on_all.act));
  end case;
end
$$;

-- Does an act to one job; returns what became of it. Between two looks a job may pass from one state to another that fits, and what others have
-- locked is passed over: so it tries again, for about half a second.
create function queue.act_on_one(id bigint, act text, run_at timestamptz default null, priority integer default null) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  became  text;
  state   text;
  holder  bigint; -- of its uniqueness key, if that is another job
  give_up timestamptz := clock_timestamp() + interval '500 ms';
  wanted  text[] := case act
    when 'cancel' then '{ready,scheduled,blocked,parked,running}'
    when 'reschedule' then '{ready,scheduled}'
    when 'snooze' then '{ready,scheduled}'
    when 'run_now' then '{scheduled,parked}'
    when 'set_priority' then '{ready,scheduled}'
    when 'requeue' then '{dead,completed,cancelled,expired}'
    when 'force_requeue' then '{dead,completed,cancelled,expired}'
    when 'discard' then '{dead}'
  end;
  done    text := case act
    when 'cancel' then 'cancelled'
    when 'reschedule' then 'rescheduled'
    when 'snooze' then 'snoozed'
    when 'run_now' then 'run now'
    when 'set_priority' then 'given another priority'
    when 'requeue' then 'requeued'
    when 'force_requeue' then 'requeued'
    when 'discard' then 'discarded'
  end;
begin
  for tries in 1 .. 25 loop
    select a.became into became
    from queue.act_on_all(array[act_on_one.id], act_on_one.act, act_on_one.run_at, act_on_one.priority) a;
    if became is not null then
      return became;
    elsif act in ('requeue', 'force_requeue') and queue.reopen(act_on_one.id, act = 'force_requeue') then
      return 'requeued';
    end if;
    if act = 'requeue' then
      holder := queue.key_holder(act_on_one.id);
    end if;
    state := queue.state_of(act_on_one.id);
    exit when state is null or state <> all (wanted) or holder is not null or clock_timestamp() > give_up;
    perform pg_sleep(0.02);
  end loop;
  raise exception using
    errcode = case when state is null then 'P0002' when holder is null and state = any (wanted) then '55P03' else '55000' end,
    message = case
      when state is null then
        format('there is no job %s', act_on_one.id)
      when state = any (wanted) and holder is not null then
        format('job %s is %s, and job %s has taken its uniqueness key; cancel that one, or force this one to live beside it',
          act_on_one.id, state, holder)
      when state = any (wanted) then
        format('job %s is %s, but another transaction has it locked: somebody changes it, enqueues under its key, or it runs in one',
          act_on_one.id, state)
      else
        format('job %s is %s; only a job that is %s can be %s', act_on_one.id, state, array_to_string(wanted, ' or '), done)
      end,
    detail = json_build_object('job', act_on_one.id::text, 'state', state, 'wanted', wanted, 'done', done, 'holder', holder::text);
end
$$;

-- Cancels one job: 'cancelled' if it waited, 'cancelling' if it runs and its handler will be told to stop.
create function queue.cancel(id bigint) returns text
  language sql volatile
begin atomic
  select queue.act_on_one(cancel.id, 'cancel');
end;

-- Puts one job off until that time, or makes it due earlier.
create function queue.reschedule(id bigint, run_at timestamptz) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(reschedule.id, 'reschedule', run_at => reschedule.run_at);
end;

-- Puts one job off for that long from now, by the database's clock.
create function queue.snooze(id bigint, wait interval) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(snooze.id, 'snooze', run_at => pg_catalog.clock_timestamp() + snooze.wait);
end;

-- Makes one scheduled or parked job ready.
create function queue.run_now(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(run_now.id, 'run_now');
end;

-- Gives one waiting job another priority; higher runs first.
create function queue.set_priority(id bigint, priority integer) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(set_priority.id, 'set_priority', priority => set_priority.priority);
end;

-- Brings one job that is over back to the end of its lane or ordering key: a dead letter, a completed, cancelled or expired one. One whose uniqueness
-- key another job holds is refused, unless it is forced to live beside that one.
create function queue.requeue(id bigint, force boolean default false) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(requeue.id, case when requeue.force then 'force_requeue' else 'requeue' end);
end;

-- Deletes one dead letter, with its payload and failures.
create function queue.discard(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(discard.id, 'discard');
end;
