-- Operations on waiting, running and finished jobs, for operators and programs in any language. Each operation is one set-based function
-- over ids, and has a name that ends with `_all`. An operation returns the ids of the changed jobs, and skips jobs whose state does not
-- permit the operation. Operations by name, and operations on a single job, are at the end of the file.
--
--   cancel_waiting_all   ready | scheduled | blocked | parked -> done (cancelled); the ordering key continues without the job
--   cancel_running_all   marks the job in its lease: the worker asks the handler to stop, and the job ends with the attempt
--   reschedule_all       ready | scheduled -> scheduled, at the given time
--   run_now_all          scheduled | parked -> ready
--   set_priority_all     ready | scheduled -> the same table, in the lane of the given priority
--
-- Safe: an operation inserts only entries that it has deleted from ready, scheduled, parked or blocked (see the take_* functions). If a
-- claim or a promotion has already deleted the entry, the operation does not find it. A later claim or promotion skips the locked row.
-- Entries locked by other sessions, for example by a claim about to commit or by another operator, are also skipped (SKIP LOCKED). Rows
-- are locked in the order of their ids.
--
-- Rows are deleted by ctid, which is possible because entries are never updated in place. A plan that joins the rows by key would scan
-- the whole table for each job if the table's statistics are outdated.
--
-- In bodies between BEGIN ATOMIC and END, PostgreSQL resolves names when the function is created. All other functions set their
-- search_path. Most functions are planned for every call, because a plan made while a table was empty is slow once the table is full.

-- Returns the ready entries of the jobs in `ids`. Most entries have the job's id as their position in the job's lane. A released
-- quarantined job has its id as its position in the quarantine lane. A separate index finds all other entries.
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

-- Entry of a waiting job that a take_* function has deleted. run_at is null if the job was ready.
create type queue.removed_entry as (run_at timestamptz, id bigint, lane bigint, attempts smallint, crashes smallint);

-- Deletes the scheduled entries of the jobs in `ids`, and returns them to the caller. The caller inserts the jobs into another table in
-- the same transaction. With `fresh`, takes only jobs that have not started.
--
-- A caller that needs further data about the jobs must read it in its next statement. The snapshot of this function is newer than the
-- caller's snapshot, which may not show a job's lane, or that the job is the head of its key.
create function queue.take_scheduled(ids bigint[], fresh boolean default false) returns setof queue.removed_entry
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

-- Deletes the parked entries of the jobs in `ids`, and returns them to the caller. The caller inserts the jobs into another table in the
-- same transaction (see take_scheduled).
create function queue.take_parked(ids bigint[]) returns setof queue.removed_entry
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

-- Deletes the ready and scheduled entries of the jobs in `ids`, and returns them to the caller. The caller inserts the jobs into another
-- table in the same transaction (see take_scheduled). With `fresh`, takes only jobs that have not started. Takes the ready entries
-- first, then the scheduled entries in a second statement. Claimed jobs are not found, and a job that moves between the two tables may be
-- missed.
create function queue.take_waiting(ids bigint[], fresh boolean default false) returns setof queue.removed_entry
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
    case when r.fair_id is null then r.lane else queue.paired_lane(r.lane) end,
    r.attempts, r.crashes;
  return query select s.* from queue.take_scheduled(take_waiting.ids, take_waiting.fresh) s;
end
$$;

-- Returns the state of one job, or null if the job does not exist.
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

-- ready | scheduled | blocked | parked -> done: ends the waiting jobs among `ids` as cancelled, or as expired if `expired` is set, and
-- returns their ids. Only ready, scheduled and blocked jobs that have not started can expire. If a key's head ends, the key is released
-- for its next job. The end of a blocked job does not affect its key.
create function queue.end_waiting(ids bigint[], expired boolean) returns setof bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  taken queue.removed_entry[] := array(select t from queue.take_waiting(end_waiting.ids, end_waiting.expired) t);
  deleted  bigint[];
  keys  boolean;
begin
  if not end_waiting.expired then
    taken := taken || array(select t from queue.take_parked(end_waiting.ids) t);
  end if;
  with keyed as materialized (
    select j.id, j.key from queue.job j where j.id = any (end_waiting.ids) and j.key is not null
  ), waiting_entries as materialized (
    select b.ctid as at
    from queue.blocked b
    where b.key = any (array(select distinct k.key from keyed k where k.id not in (select t.id from unnest(taken) t)))
      and b.id = any (end_waiting.ids)
    order by b.id
    for update skip locked
  ), unblocked as materialized (
    delete from queue.blocked b
    where b.ctid = any (array(select i.at from waiting_entries i))
    returning b.id
  ), finished as materialized (
    select t.id, t.attempts from unnest(taken) t
    union all
    select u.id, 0::smallint from unblocked u
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select a.ctid from queue.active_key a where a.key = k.key and a.id = k.id)
      from keyed k
      where k.id in (select o.id from finished o)
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
    from finished o
    returning done.id
  )
  select array_agg(e.id), exists (select from hinted) into deleted, keys from entered e;
  if keys then
    perform queue.wake_keys();
  end if;
  if cardinality(deleted) > 0 then
    perform queue.add_end_hints(deleted);
    if not end_waiting.expired then
      perform queue.cancel_children(deleted);
    end if;
    perform queue.notify_waiters();
  end if;
  return query select u.id from unnest(deleted) u (id);
end
$$;

-- Cancels the waiting jobs among `ids` (see end_waiting).
create function queue.cancel_waiting_all(ids bigint[]) returns setof bigint
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
begin atomic
  select e.id from queue.end_waiting(cancel_waiting_all.ids, false) e (id);
end;

-- Marks the running jobs among `ids` for cancellation in their leases. Workers check the marks when notified, and about once a second.
--
-- While another session has locked one of the leases, the function marks no job and retries. A settle locks a lease only briefly, but an
-- open transaction may lock a lease for longer. After half a second, the jobs of locked leases are skipped. A job that was settled in the
-- meantime is no longer in the lease.
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

-- ready | scheduled -> scheduled: sets the run time of the ready and scheduled jobs among `ids` to `run_at`, and moves their entries to
-- scheduled. If the time has passed, the jobs are due immediately. The jobs keep their attempts, crashes and lane.
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

-- scheduled | parked -> ready: moves the scheduled and parked jobs among `ids` to ready, at the end of their lanes, like a promotion. A
-- parked job checks its wait condition when it runs, and is parked again if it still has to wait. Flow nodes that wait for other nodes
-- stay parked, and so do the parts of a map that open_gather has not started yet (`waits`).
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

-- Moves the ready and scheduled jobs among `ids` to the lane of `priority`, within the same table. A quarantined job moves to the
-- quarantine lane of that priority.
--
-- The job's row then refers to the new lane, so retry, recovery, requeue and cancel find the job. Only the transaction that took the
-- entry writes the row. The position of a ready job becomes its id, which is unique, so the job is sorted by age. Workers find a position
-- below the lane's floor within about a second.
create function queue.set_priority_all(ids bigint[], priority integer) returns setof bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  taken   queue.removed_entry[] := array(select t from queue.take_waiting(set_priority_all.ids) t);
  moved   bigint[];
  wanted  smallint := set_priority_all.priority;
begin
  with off as materialized (
    select t.run_at, t.id, t.lane, t.attempts, t.crashes, l.queue, l.job_type, l.solo
    from unnest(taken) t
    cross join lateral (select l.queue, l.job_type, l.solo from queue.lane l where l.lane = t.lane limit 1) l
  ), target as materialized (
    select k.queue, k.job_type, k.solo, queue.ensure_lane(k.queue, k.job_type, wanted, false) as plain,
      case when k.solo then queue.ensure_lane(k.queue, k.job_type, wanted, true) end as twin
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

-- Wakes idle workers that serve the queues of the jobs in `ids`. Must be a separate statement after the one that changes the jobs, so that
-- its snapshot shows the jobs' new lanes and the workers that have become idle.
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

-- Operations on finished jobs. As in the operations on waiting jobs, rows locked by other sessions are skipped.
--
--   requeue_all   dead -> ready | blocked
--   reopen        done | done_many -> ready | blocked
--   discard_all   dead -> nothing

-- Locks ordering keys by their stripes until the end of the transaction. Returns the locked stripes. Waits at most one second in total,
-- plus 1 ms for each remaining stripe, because a producer holds the lock on its key until its transaction ends.
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

-- Returns the id of another job that holds the uniqueness key of the job `id`, or null if no other job holds the key.
create function queue.key_holder(id bigint) returns bigint
  language sql stable
begin atomic
  select u.id
  from queue.job j
  join queue.unique_key u on u.hash = queue.unique_of(j.system)
  where j.id = key_holder.id and u.id <> j.id and queue.holds(u.held, u.until, queue.state_of(u.id));
end;

-- Takes the uniqueness keys of the jobs in `ids` for a requeue, and returns the jobs that may be requeued. Omits a job if another job
-- holds its key or is about to take it. Waits at most one second in total for concurrent enqueues, plus 1 ms for each remaining key. Each
-- job holds its key for the same period as before, except that a key that was held for an interval is not taken again.
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
    select j.id, queue.unique_of(j.system) as hash, queue.unique_while(j.system) as held
    from queue.job j
    where j.id = any (retake_keys.ids) and queue.unique_of(j.system) is not null
    order by hash, j.id
  loop
    begin
      if clock_timestamp() >= give_up then
        set local lock_timeout = '1ms';
      end if;
      if taker.held = 'until' then
        select u.* into holder from queue.unique_key u where u.hash = taker.hash for update;
      else
        insert into queue.unique_key as u (hash, id, held) values (taker.hash, taker.id, taker.held)
        on conflict on constraint unique_key_pkey do update set id = u.id -- only locks the row
        returning u.* into holder;
      end if;
      if taker.hash = last and taker.held <> 'until'
        or holder.id <> taker.id and queue.holds(holder.held, holder.until, queue.state_of(holder.id))
      then
        kept := array_remove(kept, taker.id);
      elsif taker.held <> 'until' and (holder.id <> taker.id or holder.held <> taker.held) then
        update queue.unique_key u set id = taker.id, held = taker.held, until = null where u.hash = taker.hash;
      end if;
    exception when lock_not_available then
      kept := array_remove(kept, taker.id);
    end;
    last := taker.hash;
  end loop;
  return kept;
end
$$;

-- Moves the dead letters among `ids` to the end of their lanes (dead -> ready | blocked), resets their attempts and crashes, and returns
-- their ids. The recorded failures are kept. The function inserts into ready only entries that it has deleted from dead, so a job is
-- requeued only once. A second operator or a discard skips the row or finds it deleted, and a claim sees the job only after the commit.
-- Rows are locked in the order of their ids.
--
-- If another job holds the uniqueness key of a dead letter, the dead letter stays, unless `force` is set. With `force`, both jobs are live.
-- A quarantined job leaves the quarantine lane, because the operator considers the job fixed. A job that blocks its ordering key keeps its
-- position. If the key has continued without the job, the job goes behind the key's blocked jobs under the key's lock, and stays dead if
-- the lock is not available.
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
  perform queue.reset_children(back);
  perform queue.wake_for(back);
  if keys then
    perform queue.wake_keys();
  end if;
  return query select u.id from unnest(back) u (id);
end
$$;

-- Moves a completed, cancelled or expired job to the end of its lane or ordering key (done | done_many -> ready | blocked), resets its
-- attempts, and returns whether the job was moved. As in requeue_all, a job is not moved if another job holds its uniqueness key. The
-- recorded failures are kept. The output and the checkpoint are deleted, because the job starts from the beginning.
--
-- The job enters ready only if this function has deleted its done row, or has removed its id from its done_many row. Pruning deletes the
-- same row before the payload, so only one of the two operations succeeds. The function skips a row locked by another session, and a job
-- whose ordering key cannot be locked in time. The caller then finds the job still finished and retries. The caller also retries if the
-- done_many row shrinks to this job alone between two statements, because neither branch then finds the row.
create function queue.reopen(id bigint, force boolean default false) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  returned  bigint[];
  keys  boolean;
  job_key  bigint := (select j.key from queue.job j where j.id = reopen.id);
begin
  if job_key is not null and cardinality(queue.lock_some_keys(array[job_key & 1023])) = 0 then
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
  select array_agg(b.id), bool_or(b.key is not null) into returned, keys from back b;
  perform queue.forget_children(returned);
  perform queue.forget_gathers(returned);
  perform queue.forget_expiry(returned);
  perform queue.wake_for(returned);
  if keys then
    perform queue.wake_keys();
  end if;
  return returned is not null;
end
$$;

-- Deletes the dead letters among `ids`, with payloads and failures, and returns their ids. A job that blocked its ordering key releases
-- the key. The payload is deleted only if this function has deleted the dead row, so a job that is requeued concurrently keeps its
-- payload. A second operator or a requeue skips the row or finds it deleted. Rows are locked in the order of their ids.
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
  ), deleted as materialized (
    delete from queue.dead d
    using held h
    where d.id = h.id
    returning d.id
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = g.id) and k.id = g.id)
      from deleted g
    ))
    returning key, seq
  ), hinted as (
    insert into queue.key_hint (key, after)
    select f.key, f.seq
    from freed f
    returning key_hint.key
  ), payloads as (
    delete from queue.job j
    where j.id = any (array(select g.id from deleted g))
  ), steps as (
    delete from queue.step s
    where s.id = any (array(select g.id from deleted g))
  ), signals as (
    delete from queue.signal s
    where s.id = any (array(select g.id from deleted g))
  ), failures as (
    delete from queue.failure f
    where f.id = any (array(select g.id from deleted g))
  )
  select array_agg(g.id), exists (select from hinted) into discarded, keys from deleted g;
  if keys then
    perform queue.wake_keys();
  end if;
  perform queue.forget_children(discarded);
  perform queue.forget_gathers(discarded);
  if cardinality(discarded) > 0 then
    perform queue.add_end_hints(array(select n.id from queue.node n where n.id = any (discarded)), 'gone');
    perform queue.notify_waiters();
  end if;
  return query select u.id from unnest(discarded) u (id);
end
$$;

-- Operations by name, on one job or on many jobs. An operation on many jobs skips jobs that do not permit the operation. An operation on
-- one job raises an error: SQLSTATE P0002 if the job does not exist, 55P03 if another transaction has locked it, and 55000 otherwise.
-- DETAIL is JSON with the job, its state, the required states and the rejected operation. If the uniqueness key is the reason, DETAIL
-- also names the job that holds the key.

-- Applies an operation to the jobs in `ids` whose state permits it. Returns the id and outcome of each changed job.
create function queue.apply_to_all(ids bigint[], act text, run_at timestamptz default null, priority integer default null)
  returns table (id bigint, became text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  changed bigint;
begin
  case act
    when 'cancel' then
      return query select c.id, 'cancelled' from queue.cancel_waiting_all(apply_to_all.ids) c (id);
      get diagnostics changed = row_count;
      if changed < cardinality(apply_to_all.ids) then
        return query select c.id, 'cancelling' from queue.cancel_running_all(apply_to_all.ids) c (id);
      end if;
    when 'reschedule' then
      return query select c.id, 'rescheduled' from queue.reschedule_all(apply_to_all.ids, apply_to_all.run_at) c (id);
    when 'snooze' then
      return query select c.id, 'snoozed' from queue.reschedule_all(apply_to_all.ids, apply_to_all.run_at) c (id);
    when 'run_now' then
      return query select c.id, 'ready' from queue.run_now_all(apply_to_all.ids) c (id);
    when 'set_priority' then
      return query select c.id, 'changed' from queue.set_priority_all(apply_to_all.ids, apply_to_all.priority) c (id);
    when 'requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(apply_to_all.ids) c (id);
    when 'force_requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(apply_to_all.ids, force => true) c (id);
    when 'discard' then
      return query select c.id, 'discarded' from queue.discard_all(apply_to_all.ids) c (id);
    else
      raise invalid_parameter_value using message = format('unknown operation %s', to_json(apply_to_all.act));
  end case;
end
$$;

-- Applies an operation to one job, and returns the outcome. Retries for about half a second, because locked rows are skipped, and because
-- the job may move from one permitted state to another while the statements run.
create function queue.apply_to_one(id bigint, act text, run_at timestamptz default null, priority integer default null) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  became  text;
  state   text;
  holder  bigint; -- other job that holds the uniqueness key, if any
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
    from queue.apply_to_all(array[apply_to_one.id], apply_to_one.act, apply_to_one.run_at, apply_to_one.priority) a;
    if became is not null then
      return became;
    elsif act in ('requeue', 'force_requeue') and queue.reopen(apply_to_one.id, act = 'force_requeue') then
      return 'requeued';
    end if;
    if act = 'requeue' then
      holder := queue.key_holder(apply_to_one.id);
    end if;
    state := queue.state_of(apply_to_one.id);
    exit when state is null or state <> all (wanted) or holder is not null or clock_timestamp() > give_up;
    perform pg_sleep(0.02);
  end loop;
  raise exception using
    errcode = case when state is null then 'P0002' when holder is null and state = any (wanted) then '55P03' else '55000' end,
    message = case
      when state is null then
        format('there is no job %s', apply_to_one.id)
      when state = any (wanted) and holder is not null then
        format('job %s is %s, and job %s has taken its uniqueness key; cancel that job, or force the requeue',
          apply_to_one.id, state, holder)
      when state = any (wanted) then
        format('job %s is %s, but another transaction has it locked: one that changes it, enqueues under its key, or runs it',
          apply_to_one.id, state)
      else
        format('job %s is %s; only a job that is %s can be %s', apply_to_one.id, state, array_to_string(wanted, ' or '), done)
      end,
    detail = json_build_object('job', apply_to_one.id::text, 'state', state, 'wanted', wanted, 'done', done, 'holder', holder::text);
end
$$;

-- Cancels one job. Returns 'cancelled' if the job was waiting, and 'cancelling' if it is running. The worker of a running job then asks
-- the handler to stop.
create function queue.cancel(id bigint) returns text
  language sql volatile
begin atomic
  select queue.apply_to_one(cancel.id, 'cancel');
end;

-- Sets the run time of one ready or scheduled job to `run_at`, which may be earlier or later than before.
create function queue.reschedule(id bigint, run_at timestamptz) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(reschedule.id, 'reschedule', run_at => reschedule.run_at);
end;

-- Sets the run time of one ready or scheduled job to `wait` from now, measured by the database clock.
create function queue.snooze(id bigint, wait interval) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(snooze.id, 'snooze', run_at => pg_catalog.clock_timestamp() + snooze.wait);
end;

-- Makes one scheduled or parked job ready.
create function queue.run_now(id bigint) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(run_now.id, 'run_now');
end;

-- Changes the priority of one ready or scheduled job. Higher priorities run first.
create function queue.set_priority(id bigint, priority integer) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(set_priority.id, 'set_priority', priority => set_priority.priority);
end;

-- Moves one dead, completed, cancelled or expired job to the end of its lane or ordering key. Rejects the job if another job holds its
-- uniqueness key, unless `force` is set. With `force`, both jobs are live.
create function queue.requeue(id bigint, force boolean default false) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(requeue.id, case when requeue.force then 'force_requeue' else 'requeue' end);
end;

-- Deletes one dead letter, with its payload and failures.
create function queue.discard(id bigint) returns void
  language sql volatile
begin atomic
  select queue.apply_to_one(discard.id, 'discard');
end;
