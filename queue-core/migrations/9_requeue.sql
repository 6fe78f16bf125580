-- What is done to jobs that are over, from any language; as in 8_control.sql, but that rows which others hold are waited for.
--
--   requeue_all   dead -> ready | blocked
--   reopen        done | done_many -> ready | blocked
--   discard_all   dead -> nothing

-- dead -> ready | blocked: those of these jobs that are dead letters, to the end of their own lanes with no attempt and no crash; returns them.
-- Their failures stay.
-- Safe: only what is deleted from dead here enters ready. A second operator waits for the row, finds it gone and does nothing, as does a
-- discard; a claim sees the job at our commit. Rows are locked in the order of their ids. A job under suspicion leaves its solo lane: the
-- operator says that it is mended. One that holds up its ordering key keeps its place; one whose key went on without it goes to the end of the
-- key's line, under the key's lock.
create function queue.requeue_all(ids bigint[]) returns setof bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  back  bigint[];
  keys  boolean;
begin
  with held as materialized (
    select d.id
    from queue.dead d
    where d.id = any (requeue_all.ids)  -- guard: requeue: only the jobs named
    order by d.id  -- guard: requeue: locks in one order
    for update  -- guard: requeue: locks
  ), risen as materialized (
    delete from queue.dead d
    using held h
    -- guard: requeue: each its own lane [= h.id offset 0 => > 0 limit 1]
    cross join lateral (select j.lane, j.key from queue.job j where j.id = h.id offset 0) j
    where d.id = h.id  -- guard: requeue: only what was locked
    returning d.id, j.lane, j.key,
      -- guard: the head keeps its place [ and not .. .id = d.id)]
      j.key is not null and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id) as is_late
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select r.lane, queue.next_id(), r.id  -- guard: requeue: a new place [queue.next_id() => r.id]
    from risen r
    where not r.is_late  -- guard: late ones are not ready
    order by r.id  -- guard: requeue: in the order of ids
  ), locked as materialized (
    select queue.lock_key(s.stripe)  -- guard: requeue: places follow commits [queue.lock_key(s.stripe) => s.stripe]
    from (select distinct r.key & 1023 as stripe from risen r where r.is_late order by 1) s
  ), queued_up as (
    insert into queue.blocked (key, seq, id, lane)
    select r.key, nextval('queue.key_seq'), r.id, r.lane
    from (select count(*) from locked) l
    -- guard: late ones in the order of their ids [ order by r.id]; only late ones to the end [ where r.is_late]
    cross join (select r.* from risen r where r.is_late order by r.id) r
  ), hinted as (
    insert into queue.key_hint (key)
    select distinct r.key
    from risen r
    where r.is_late  -- guard: requeue: its key is left a hint [r.is_late => false]
  )
  select array_agg(r.id), bool_or(r.is_late) into back, keys from risen r;
  perform queue.wake_for(back);  -- guard: requeue: workers are told
  if keys then
    perform queue.wake_keys();  -- guard: requeue: whoever sees to keys is told
  end if;
  return query select u.id from unnest(back) u (id);
end
$$;

-- done | done_many -> ready | blocked: the job, if it is completed or cancelled, to the end of its lane or ordering key with no attempt; says
-- whether it was. Its failures stay, its output goes, and its checkpoint with it: the job is to begin anew.
-- Safe: it enters ready only if its done row is deleted here, or its id is taken out of its done_many row. A second operator waits for the row
-- and then finds the job gone from it. If at that moment the row has become one of this job alone, neither branch takes it: the caller looks,
-- sees it completed and tries again. Pruning deletes the same row before it deletes the payload, so one of us two gets neither.
create function queue.reopen(id bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  came  bigint[];
  keys  boolean;
begin
  with reopened as materialized (
    delete from queue.done d
    where d.id = reopen.id  -- guard: reopen: only the job named
    returning d.id
  ), struck as materialized (
    update queue.done_many m
    set ids = array_remove(m.ids, reopen.id),
      first_id = (array_remove(m.ids, reopen.id))[1],
      last_id = (array_remove(m.ids, reopen.id))[cardinality(m.ids) - 1]
    -- redundant: reopen: plainly done: in the same span [between (reopen.id >> 33) << 33 and => <=] (for the plan: the row holds the id)
    -- redundant: reopen: plainly done: not beyond the last [ and m.last_id >= reopen.id] (for the plan: the row holds the id)
    -- guard: reopen: plainly done: among the row's jobs [ and reopen.id = any (m.ids)]
    -- guard: reopen: plainly done: not the last of the row [ and cardinality(m.ids) > 1]
    where m.first_id between (reopen.id >> 33) << 33 and reopen.id and m.last_id >= reopen.id and reopen.id = any (m.ids) and cardinality(m.ids) > 1
    returning reopen.id as id
  ), emptied as materialized (
    delete from queue.done_many m
    -- guard: reopen: plainly done alone: first [m.first_id = reopen.id and ]; reopen: plainly done alone: last [ and m.last_id = reopen.id]
    where m.first_id = reopen.id and m.last_id = reopen.id
    returning m.first_id as id
  ), back as materialized (
    select j.id, j.lane, j.key
    from queue.job j
    -- guard: reopen: back only if its row was deleted [ and .. emptied)]; reopen: back if it was done [select from reopened union all]
    -- guard: reopen: back if it was struck [ union all select from struck]; reopen: back if it was alone [ union all select from emptied]
    -- guard: reopen: the job named comes back [j.id = reopen.id and ]
    where j.id = reopen.id and exists (select from reopened union all select from struck union all select from emptied)
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select b.lane, queue.next_id(), b.id  -- guard: reopen: a new place [queue.next_id() => b.id]
    from back b
    where b.key is null  -- guard: ready only without a key
  ), locked as materialized (
    select queue.lock_key(b.key)  -- guard: reopen: places follow commits [queue.lock_key(b.key) => b.key]
    from back b
    where b.key is not null  -- guard: to the end of a key only with one
  ), queued_up as (
    insert into queue.blocked (key, seq, id, lane)
    select b.key, nextval('queue.key_seq'), b.id, b.lane
    from locked l
    cross join back b
  ), hinted as (
    insert into queue.key_hint (key)
    select b.key
    from back b
    where b.key is not null  -- guard: reopen: its key is left a hint [b.key is not null => false]
  ), forgotten as (
    delete from queue.progress p
    where p.id = any (array(select b.id from back b))  -- guard: reopen: forgets what that job said
  )
  select array_agg(b.id), bool_or(b.key is not null) into came, keys from back b;
  perform queue.wake_for(came);  -- guard: reopen: workers are told
  if keys then
    perform queue.wake_keys();  -- guard: reopen: whoever sees to keys is told
  end if;
  return came is not null;
end
$$;

-- dead -> nothing: those of these jobs that are dead letters, with payload and failures; returns them.
-- Safe: only a job whose dead row is deleted here loses its payload. A second operator waits for the row, finds it gone and does nothing, as
-- does a requeue. Rows are locked in the order of their ids. One that held up its ordering key frees it.
create function queue.discard_all(ids bigint[]) returns setof bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
  discarded bigint[];
  keys  boolean;
begin
  with held as materialized (
    select d.id
    from queue.dead d
    where d.id = any (discard_all.ids)  -- guard: discard: only the jobs named
    order by d.id  -- guard: discard: locks in one order
    for update  -- guard: discard: locks
  ), gone as materialized (
    delete from queue.dead d
    using held h
    where d.id = h.id  -- guard: discard: only what was locked
    returning d.id
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      -- guard: only the head frees its key [ and k.id = g.id]
      select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = g.id) and k.id = g.id)
      from gone g
    ))
    returning key, seq
  ), hinted as (
    insert into queue.key_hint (key, after)
    select f.key, f.seq
    from freed f  -- guard: a freed key is left a hint [freed f => freed f where false]
    returning key_hint.key
  ), payloads as (
    delete from queue.job j
    -- guard: discard: payloads of those discarded; discard: payloads only of dead letters [array(select g.id from gone g) => discard_all.ids]
    where j.id = any (array(select g.id from gone g))
  ), failures as (
    delete from queue.failure f
    -- guard: discard: failures of those discarded; discard: failures only of dead letters [array(select g.id from gone g) => discard_all.ids]
    where f.id = any (array(select g.id from gone g))
  )
  select array_agg(g.id), exists (select from hinted) into discarded, keys from gone g;
  if keys then
    perform queue.wake_keys();  -- guard: discard: whoever sees to keys is told
  end if;
  if cardinality(discarded) > 0 then
    perform queue.tell_waiters();  -- guard: discard: who waits for jobs is told [perform queue.tell_waiters() => null]
  end if;
  return query select u.id from unnest(discarded) u (id);
end
$$;
