-- What is done to jobs that are over, from any language; as in 8_control.sql: rows which others hold are passed over.
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
