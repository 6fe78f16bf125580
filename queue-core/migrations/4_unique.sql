-- Uniqueness keys. Only enqueues and requeues check the keys: a claim, settle, recovery or cancellation writes nothing for them.
--
--   unique_key  written by an enqueue with a key (queue.enqueue_with) or a requeue (retake_keys), read by the next enqueue with the same
--               key, deleted by any worker once the job no longer holds the key (forget_keys)

-- The last job that took each uniqueness key. The current state of this job determines whether the job still holds the key.
create table queue.unique_key (
  hash   uuid         not null,               -- see queue.unique_hash
  id     bigint       not null,
  -- Period for which the job holds the key. live: until the job is finished; queued: until the job is claimed; kept: until the job's
  -- history is pruned; until: until the time in the next column
  held   text         not null,
  until  timestamptz,
  constraint unique_key_pkey primary key (hash),
  constraint unique_key_held_is_known check (held in ('live', 'queued', 'kept', 'until')),
  constraint unique_key_has_its_time check ((held = 'until') = (until is not null)),
  constraint unique_key_until_in_range check (until >= '1970-01-01+00' and until < '10000-01-01+00')
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Returns a 16-byte hash of a uniqueness key of any length, within its queue and job type. Names of queues and job types contain no
-- slash, so the hashed text is unambiguous.
create function queue.unique_hash(queue text, job_type text, unique_key text) returns uuid
  language sql immutable parallel safe
  return pg_catalog.encode(pg_catalog.substring(queue.digest(queue || '/' || job_type || '/' || unique_key), 1, 16), 'hex')::uuid;

-- Returns the hash of the uniqueness key from a job's `system` attributes, or null if the job has no key. Values that are not a UUID are
-- ignored.
create function queue.unique_of(system jsonb) returns uuid
  language sql immutable parallel safe
  return case when system ->> 'unique' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (system ->> 'unique')::uuid end;

-- Returns the value of unique_key.held for a job, read from the job's `system` attributes.
create function queue.unique_while(system jsonb) returns text
  language sql immutable parallel safe
  return case when system ->> 'unique_while' in ('queued', 'kept', 'until') then system ->> 'unique_while' else 'live' end;

-- Returns whether a job in `state` (null if the job does not exist) holds a uniqueness key with the period `held`.
create function queue.holds(held text, until timestamptz, state text) returns boolean
  language sql volatile
  return case held
    when 'live' then coalesce(state in ('ready', 'scheduled', 'blocked', 'running', 'parked'), false)
    when 'queued' then coalesce(state in ('ready', 'scheduled', 'blocked'), false)
    when 'kept' then state is not null
    else until > pg_catalog.clock_timestamp()
  end;

-- Applies the conflict rule of a new enqueue to the waiting job that holds the key, and prevents claims of this job until the transaction
-- ends. Returns false if the job is no longer in the given state and position. Waits if a claim has locked the job's entry.
--
-- To replace the payload of a ready job, the function deletes the entry and inserts it again at the same position. A claim whose snapshot
-- is older than the payload therefore does not find the entry. A payload of another version moves the job to the lane of that version.
create function queue.change_waiting(
  id bigint, state text, lane bigint, seq bigint, due timestamptz, stored text, payload jsonb, run_at timestamptz, on_conflict text
) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  later    boolean := on_conflict = 'debounce' and coalesce(change_waiting.run_at > greatest(due, clock_timestamp()), false);
  taken    record;
  fair_id  bigint; -- fair queue of the job, if any
  old      record;
  plain    bigint; -- lane of the new payload's version
  moved    bigint := change_waiting.lane;
begin
  if on_conflict = 'replace' then
    select l.queue, l.job_type, l.priority, l.solo, l.paired into old from queue.lane l where l.lane = change_waiting.lane limit 1;
    if old.job_type <> stored then
      plain := queue.ensure_lane(old.queue, stored, old.priority, false);
      moved := case
        when old.solo then queue.ensure_lane(old.queue, stored, old.priority, true)
        when old.paired then queue.ensure_fair_lane(plain)
        else plain
      end;
    end if;
  end if;
  if later then
    perform queue.check_run_at(change_waiting.run_at);
  end if;
  if state = 'ready' then
    if later or on_conflict = 'replace' then
      delete from queue.ready r
      where r.lane = change_waiting.lane and r.seq = change_waiting.seq and r.id = change_waiting.id
      returning r.attempts, r.crashes, r.fair_id into taken;
      fair_id := taken.fair_id;
    else
      perform from queue.ready r where r.lane = change_waiting.lane and r.seq = change_waiting.seq and r.id = change_waiting.id for update;
    end if;
  elsif state = 'blocked' then
    update queue.blocked b
    set lane = moved, run_at = case when later then change_waiting.run_at else b.run_at end
    where b.key = (select j.key from queue.job j where j.id = change_waiting.id) and b.seq = change_waiting.seq and b.id = change_waiting.id;
  elsif later then
    delete from queue.scheduled s where s.run_at = due and s.id = change_waiting.id returning s.attempts, s.crashes into taken;
  elsif moved <> change_waiting.lane then
    update queue.scheduled s set lane = moved where s.run_at = due and s.id = change_waiting.id;
  else
    perform from queue.scheduled s where s.run_at = due and s.id = change_waiting.id for update;
  end if;
  if not found then
    return false;
  end if;
  if later and state <> 'blocked' then
    insert into queue.scheduled (run_at, id, lane, attempts, crashes)
    values (change_waiting.run_at, change_waiting.id,
      case when fair_id is null then change_waiting.lane else queue.paired_lane(change_waiting.lane) end,
      taken.attempts, taken.crashes);
  elsif on_conflict = 'replace' then
    if state = 'ready' then
      insert into queue.ready (lane, seq, id, attempts, crashes, fair_id)
      values (moved, change_waiting.seq, change_waiting.id, taken.attempts, taken.crashes, fair_id);
    end if;
    perform queue.check_payload(change_waiting.payload);
    update queue.job j
    set payload = change_waiting.payload, lane = coalesce(plain, j.lane)
    where j.id = change_waiting.id;
  end if;
  return true;
end
$$;

-- Takes a uniqueness key, or applies the conflict rule to the job that holds the key and returns this job. The key's row stays locked
-- until the transaction ends, so concurrent enqueues wait. A rollback releases the key.
--
-- Every step is a separate statement, whose snapshot is newer than the locks taken before it. Under repeatable read, where the snapshot
-- is older, a concurrent change raises a serialization error.
create function queue.take_key(hash uuid, stored text, payload jsonb, run_at timestamptz, on_conflict text, out id bigint, out outcome text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  holder  queue.unique_key;
  seen    record;
begin
  loop
    -- Waits for any transaction that is inserting, updating or deleting the row.
    insert into queue.unique_key (hash, id, held) values (take_key.hash, 0, 'live') on conflict do nothing;
    if found then
      return;
    end if;
    select * into holder from queue.unique_key u where u.hash = take_key.hash for update;
    -- Retries if the row was deleted between the two statements.
    exit when found;
  end loop;
  loop
    select e.state, e.lane, e.seq, e.run_at into seen from queue.entry_of(holder.id) e;
    if not queue.holds(holder.held, holder.until, seen.state) then
      return;
    end if;
    id := holder.id;
    outcome := 'kept';
    -- A running or dead job is always kept. With `keep`, the job is also kept in any other state. A waiting job that holds a `queued` key
    -- must still be locked, because a claim would release the key.
    exit when coalesce(seen.state not in ('ready', 'scheduled', 'blocked'), true) or (on_conflict = 'keep' and holder.held <> 'queued');
    if queue.change_waiting(id, seen.state, seen.lane, seen.seq, seen.run_at, stored, payload, take_key.run_at, on_conflict) then
      outcome := case on_conflict when 'replace' then 'replaced' when 'debounce' then 'debounced' else 'kept' end;
      exit;
    end if;
    -- The job has moved to another entry, so the query is repeated.
    id := null;
    outcome := null;
  end loop;
end
$$;

-- Deletes rows of keys that are no longer held, and returns the number of deleted rows. Examines up to `most` rows, starting from a
-- random row.
--
-- The rows are locked first, and then checked under a newer snapshot. An older snapshot could miss the job of a producer that has just
-- taken a key.
--
-- The check searches for unfinished jobs, with one index probe per table. Reading the outcomes of finished jobs would cost ten times as
-- much. A job has exactly one entry in a snapshot, so a single statement checks all tables.
create function queue.forget_keys(most integer) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  start    uuid := gen_random_uuid();
  met      uuid[];
  gone     integer;
begin
  met := array(select u.hash from queue.unique_key u where u.hash >= start order by u.hash limit most for update skip locked);
  met := met || array(
    select u.hash from queue.unique_key u where u.hash < start order by u.hash limit most - cardinality(met) for update skip locked);
  with running as materialized (
    select u.id from queue.lease l cross join lateral unnest(l.ids) u (id)
  ), finished as materialized (
    select u.hash
    from unnest(met) m (hash)
    cross join lateral (select u.hash, u.id, u.held, u.until from queue.unique_key u where u.hash = m.hash offset 0) u
    left join lateral (
      select case
          when u.held = 'kept' then 'known'
          when exists (
            select from queue.ready r
            where r.lane = any (array[j.lane, queue.lane_id(l.queue, l.job_type, l.priority, true)]) and r.seq = u.id) then 'ready'
          when exists (select from queue.ready r where r.id = u.id and r.seq <> r.id) then 'ready'
          when exists (select from queue.scheduled s where s.id = u.id) then 'scheduled'
          when exists (select from queue.parked p where p.id = u.id) then 'parked'
          when exists (select from queue.blocked b where b.key = j.key and b.id = u.id) then 'blocked'
          when u.id in (select r.id from running r) then 'running'
        end as state
      from (select j.lane, j.key from queue.job j where j.id = u.id offset 0) j
      left join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l on true
      where u.held <> 'until'
      offset 0
    ) e on true
    where not queue.holds(u.held, u.until, e.state)
  )
  delete from queue.unique_key u
  where u.hash = any (array(select o.hash from finished o));
  get diagnostics gone = row_count;
  return gone;
end
$$;
