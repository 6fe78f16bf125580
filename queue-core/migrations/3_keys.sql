-- Ordering keys. Jobs with the same key run one at a time, in the order in which their enqueues committed.
--
--   insert_keyed -> blocked              by the producer, under a lock on the key until its transaction ends, so that positions follow
--                                          commits
--   insert_keyed -> ready | scheduled    if no job of the key is waiting or running: the job immediately becomes the key's head
--   blocked -> ready | scheduled           by any worker: the first job of a key without a head (unblock)
--
-- A key has at most one row in active_key, which identifies the key's head. The head is the only job of the key that is not blocked. It
-- is ready, scheduled or leased, or dead under the policy `block`. Retries, releases and recoveries keep the row, so the job stays the
-- head.
--
-- The transaction that ends the head deletes the row and writes a hint to key_hint. A transaction that inserts into blocked also writes a
-- hint. unblock consumes a hint in one statement and checks the key in the next statement. The second statement's snapshot is newer than
-- the commit of the hint, so it shows all changes that the hint announces.

-- Returns the hash of a key within a queue, so keys of any length cost the same. Equal keys of two queues are unrelated.
create function queue.key_id(queue text, key text) returns bigint
  language sql immutable strict parallel safe
  return queue.hash(queue || '/' || key);

-- Rows that serve as locks: 1024 for each of the purposes keys, lanes and counts, and one for the purpose days. The rows replace advisory
-- locks, which any role that may connect can take, and can observe in pg_locks.
--
-- Enqueues with different keys of the same stripe wait for each other. Two transactions that each lock several keys may deadlock. The
-- server then cancels one of the transactions.
create table queue.stripe (
  purpose  text     not null,
  stripe   integer  not null,
  constraint stripe_pkey primary key (purpose, stripe)
);
insert into queue.stripe (purpose, stripe)
select p.purpose, n from unnest('{keys,lanes,counts}'::text[]) p (purpose) cross join generate_series(0, 1023) n
union all
select 'days', 0;

-- Locks a stripe until the end of the transaction, exclusively or shared. For speed, the function schema-qualifies all names instead of
-- setting a search_path.
create function queue.lock_stripe(purpose text, stripe bigint, shared boolean default false) returns void
  language plpgsql volatile strict
as $$
begin
  if shared then
    perform from queue.stripe s
    where s.purpose operator(pg_catalog.=) lock_stripe.purpose and s.stripe operator(pg_catalog.=) lock_stripe.stripe
    for share;
  else
    perform from queue.stripe s
    where s.purpose operator(pg_catalog.=) lock_stripe.purpose and s.stripe operator(pg_catalog.=) lock_stripe.stripe
    for update;
  end if;
  if not found then
    raise no_data_found using message = pg_catalog.format('queue: unknown stripe %s of %s', stripe, purpose);
  end if;
end
$$;

-- Inserts the lane's row unless a row is visible, and returns the lane's id. Concurrent calls insert identical rows.
--
-- A new lane of a queue with a capacity is marked with has_capacity. An old snapshot may not show whether the queue has a capacity, so
-- the lane is also marked at isolation levels above read committed. A fair lane (`paired`) has a row of its own, whose id is derived from
-- the plain lane's id.
create function queue.ensure_lane(queue text, job_type text, priority integer, solo boolean, paired boolean default false) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  met bigint := queue.lane_id(ensure_lane.queue, ensure_lane.job_type, ensure_lane.priority, ensure_lane.solo);
begin
  if paired then
    met := queue.paired_lane(met);
  end if;
  if not exists (select from queue.lane l where l.lane = met and l.leaving is null) then
    -- With the lock, set_capacity finds every lane row that an enqueue may read. An enqueue never reads the row of a quarantine or fair
    -- lane, so these lanes need no lock. Recovery and fair queueing, which create these lanes, must not wait for the lock.
    if not solo and not paired then
      perform queue.lock_stripe('lanes', hashtext(ensure_lane.queue) & 1023, true);
    end if;
    insert into queue.lane (lane, queue, job_type, priority, solo, paired, has_capacity)
    values (met, ensure_lane.queue, ensure_lane.job_type, ensure_lane.priority, ensure_lane.solo, ensure_lane.paired,
      exists (select from queue.capacity c where c.queue = ensure_lane.queue) or current_setting('transaction_isolation') <> 'read committed');
  end if;
  return met;
end
$$;

-- Locks a key's stripe until the end of the transaction.
create function queue.lock_key(key bigint) returns void
  language sql volatile
  return queue.lock_stripe('keys', key & 1023);

-- Locks the stripes of the keys in `keys`, or all stripes if `every` is set, in a global order. Called by bulk enqueues, see lock_keys.sql.
create function queue.lock_keys(queues text[], keys text[], every boolean) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.lock_key(s.stripe)
  from (
    select distinct queue.key_id(k.queue, k.key) & 1023 as stripe
    from unnest(queues, keys) k (queue, key)
    where not every and k.key is not null
    union
    select n from generate_series(0::bigint, 1023) n where every
    order by 1
  ) s;
end
$$;

-- Positions of jobs within their key, and positions of hints. The sequence has no cache, so a number drawn later is higher, even in
-- another session.
create sequence queue.key_seq;

-- Returns the next number of key_seq, which becomes the position of a job within its ordering key or the position of a hint. Column
-- defaults call this function, because Citus does not allow the default of a shard's column to reference a sequence. The function is
-- evaluated on the node that writes the row.
create function queue.next_key() returns bigint
  language sql volatile
  return pg_catalog.nextval('queue.key_seq'::regclass);

create table queue.blocked (
  key     bigint       not null,
  seq     bigint       not null,
  id      bigint       not null,
  lane    bigint       not null,
  run_at  timestamptz,            -- earliest start; a job that becomes the head earlier blocks the key until this time
  constraint blocked_pkey primary key (key, seq),
  constraint blocked_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);
create index blocked_by_lane on queue.blocked (lane);  -- for counts of the waiting jobs of a queue

create table queue.active_key (
  key  bigint not null,
  seq  bigint not null,  -- former position of the head; all blocked jobs of the key have higher positions
  id   bigint not null,
  constraint active_key_is_one primary key (key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

create table queue.key_hint (
  seq    bigint not null default queue.next_key(),
  key    bigint not null,
  after  bigint not null default 0,  -- all blocked jobs of the key have positions above this one
  constraint key_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Wakes idle workers, because the next job of an ordering key may be able to run. The notification names no queue, since any worker can
-- unblock the key. Must be the transaction's last statement, as with queue.wake.
create function queue.wake_keys() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queue.idle) or current_setting('transaction_isolation') <> 'read committed' then
    perform queue.notify('wake', '#');
  end if;
end
$$;

-- Enqueues one job under an ordering key. queue.enqueue_with calls the function after checking the options. Waits for the commits of
-- earlier producers of the same key. The empty key orders the whole queue. A dead letter blocks its key under the policy `block`, but not
-- under `skip`. `hashed` is given instead of `key` if only the key's hash is known.
create function queue.insert_keyed(
  job_type text, payload jsonb, queue text, priority integer, max_attempts integer, run_at timestamptz, key text, meta jsonb, system jsonb,
  fair_id bigint default null, hashed bigint default null
) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  job_key   bigint := coalesce(insert_keyed.hashed, queue.key_id(insert_keyed.queue, insert_keyed.key));
  new_lane  bigint := queue.lane_id(insert_keyed.queue, insert_keyed.job_type, insert_keyed.priority, false);
  place     bigint;
  new_id    bigint;
  is_head   boolean := false;
begin
  if new_lane is null then
    raise null_value_not_allowed using message = 'queue.enqueue: the job type may not be null';
  end if;
  if payload is null or octet_length(payload::text) > queue.payload_limit() or queue.may_overflow(payload::text) then
    perform queue.check_payload(insert_keyed.payload);
  end if;
  if run_at is not null then
    perform queue.check_run_at(insert_keyed.run_at);
  end if;
  perform queue.lock_key(job_key);
  new_id := queue.next_id();
  place := nextval('queue.key_seq');
  insert into queue.job (id, lane, max_attempts, payload, key, meta, system, fair_id)
  values (new_id, new_lane, insert_keyed.max_attempts, insert_keyed.payload, job_key,
    insert_keyed.meta, insert_keyed.system, insert_keyed.fair_id);
  -- Under the lock, no other session inserts jobs with this key. Earlier inserts are visible, unless the snapshot is older than the lock.
  if current_setting('transaction_isolation') = 'read committed' then
    insert into queue.active_key (key, seq, id)
    select job_key, place, new_id
    where not exists (select from queue.active_key a where a.key = job_key) and not exists (select from queue.blocked b where b.key = job_key)
    on conflict do nothing;
    is_head := found;
  end if;
  if not is_head then
    insert into queue.blocked (key, seq, id, lane, run_at) values (job_key, place, new_id, new_lane, insert_keyed.run_at);
    insert into queue.key_hint (key) values (job_key);
  elsif run_at > clock_timestamp() then
    insert into queue.scheduled (run_at, id, lane) values (insert_keyed.run_at, new_id, new_lane);
  else
    insert into queue.ready (lane, seq, id) values (new_lane, new_id, new_id);
  end if;
  perform queue.ensure_lane(insert_keyed.queue, insert_keyed.job_type, insert_keyed.priority, false);
  if is_head then
    perform queue.wake(insert_keyed.queue);
  else
    perform queue.wake_keys();
  end if;
  return new_id;
end
$$;

-- Holds ordering keys in the store to which a tenant moves. Enqueues a job of the type tenant:move under each of `keys`, which are hashes
-- of keys. No worker runs that job, so later jobs of the key wait until it is cancelled. Locks the keys in the order of lock_keys.
create function queue.hold_keys(keys bigint[], meta jsonb) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.insert_keyed('tenant:move', '{}', 'tenant:move', 100, 1, '9999-12-31+00', null, hold_keys.meta, null, null, k.key)
  from (select g.key from unnest(hold_keys.keys) g (key) order by g.key & 1023, g.key) k;
end
$$;

-- Moves the first blocked job of each key in `keys` to ready or scheduled, if the key has no head. queue.unblock calls the function after
-- consuming the keys' hints. Returns the number of jobs moved, the delay until the first newly scheduled job is due, the lanes of the
-- moved jobs, and the number of hints kept for jobs locked by other sessions.
create function queue.move_heads(
  keys bigint[], afters bigint[], out moved integer, out wait_ms double precision, out lanes bigint[], out kept integer
)
  returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  moment  timestamptz := clock_timestamp();
begin
  with free as materialized (
    select k.key, k.after
    from unnest(move_heads.keys, move_heads.afters) k (key, after)
    where (select a.id from queue.active_key a where a.key = k.key) is null
  ), head as materialized (
    select f.key, f.after, b.at
    from free f
    cross join lateral (
      select b.ctid as at from queue.blocked b where b.key = f.key and b.seq > f.after order by b.seq limit 1
    ) b
  ), held as materialized (
    select b.ctid as at, b.key, b.seq, b.id
    from queue.blocked b
    where b.ctid = any (array(select h.at from head h))
    for update skip locked
  ), activated as materialized (
    insert into queue.active_key (key, seq, id)
    select h.key, h.seq, h.id
    from held h
    on conflict do nothing
    returning active_key.key
  ), left_behind as (
    insert into queue.key_hint (key, after)
    select h.key, h.after
    from head h
    where h.key not in (select a.key from activated a)
    returning 1
  ), entered as materialized (
    delete from queue.blocked
    -- Deletes by the ctid found above. On servers whose row locks follow an update to the new version of the row, a search by position
    -- may not find the row.
    where ctid = any (array(select h.at from head h where h.key in (select a.key from activated a)))
    returning blocked.seq, blocked.id, blocked.lane, blocked.run_at
  ), readied as (
    insert into queue.ready (lane, seq, id)
    select e.lane, queue.next_id(), e.id
    from entered e
    where coalesce(e.run_at <= moment, true)
    order by e.seq
  ), put_off as (
    insert into queue.scheduled (run_at, id, lane)
    select e.run_at, e.id, e.lane
    from entered e
    where e.run_at > moment
  )
  select count(*), extract(epoch from min(e.run_at) filter (where e.run_at > moment) - moment) * 1000, array_agg(distinct e.lane),
    (select count(*) from left_behind)
  into moved, wait_ms, lanes, kept
  from entered e;
end
$$;

-- blocked -> dead: moves the first blocked job of a key to the dead letters, and returns the job's id. Called if the job's new row
-- violates a constraint of the target table. Under the policy `block` the job blocks its key until an operator requeues or discards it.
-- Under `skip` the key continues. If the job already has another entry, that entry stays and the blocked entry is deleted.
create function queue.bury_blocked(key bigint, why text) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone    queue.blocked;
  state   text;
  skips   boolean;
begin
  delete from queue.blocked b
  where b.ctid = any (array(
    select h.ctid
    from queue.blocked h
    where h.ctid = (select f.ctid from queue.blocked f where f.key = bury_blocked.key order by f.seq limit 1)
    for update skip locked
  ))
  returning b.* into gone;
  if not found then
    insert into queue.key_hint (key) values (bury_blocked.key);
    return null;
  end if;
  state := (select e.state from queue.entry_of(gone.id) e);
  skips := coalesce((select j.system ? 'skips' from queue.job j where j.id = gone.id), false);
  -- entry_of reports a job without any entry as running. The blocked entry was deleted above, so 'running' means that the job has no
  -- other entry.
  if state = 'running' then
    insert into queue.dead (id, died_at, lane, attempts, crashes, error)
    values (gone.id, clock_timestamp(), gone.lane, 0, 0, 'its ordering key could not continue with it: ' || bury_blocked.why);
  end if;
  if state in ('ready', 'scheduled', 'parked') or state = 'running' and not skips then
    insert into queue.active_key (key, seq, id) values (gone.key, gone.seq, gone.id) on conflict do nothing;
  else
    insert into queue.key_hint (key, after) values (gone.key, gone.seq);
  end if;
  return gone.id;
end
$$;

-- Consumes up to `most` rows of key_hint from position `floor` on. For each hinted key without a head, the key's first job becomes ready,
-- or scheduled if it is not due yet.
--
-- Returns the number of consumed hints, the lowest hint, the number of jobs moved, and whether to call again immediately. `wait_ms` is
-- the delay until the first scheduled job is due. Never waits: if another session has locked a job, the job's hint is kept. Kept hints
-- count as consumed only if `most` hints were found.
--
-- Requires read committed, because the second statement must see everything committed before the end of the first statement.
--
-- If a table rejects a job's row, the function processes each key separately, so other keys are unaffected. The rejected jobs become dead
-- letters, and `aside` lists them.
create function queue.unblock(
  floor bigint, most integer, out hints integer, out lowest bigint, out moved integer, out wait_ms double precision, out aside bigint[],
  out more boolean
)
  returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  keys    bigint[];
  afters  bigint[];
  lanes   bigint[];
  kept    integer;
  one     record;
  part    record;
begin
  with taken as materialized (
    delete from queue.key_hint
    where ctid = any (array(
      select h.ctid
      from queue.key_hint h
      where h.seq >= unblock.floor
      order by h.seq
      limit unblock.most
      for update skip locked
    ))
    returning key_hint.seq, key_hint.key, key_hint.after
  ), once as materialized (
    select t.key, max(t.after) as after, count(*) as hints, min(t.seq) as lowest
    from taken t
    group by t.key
  )
  select coalesce(sum(o.hints), 0), min(o.lowest), array_agg(o.key order by o.key), array_agg(o.after order by o.key), 0, false
  into hints, lowest, keys, afters, moved, more
  from once o;
  if hints = 0 then
    return;
  end if;
  begin
    select m.moved, m.wait_ms, m.lanes, m.kept into moved, wait_ms, lanes, kept from queue.move_heads(keys, afters) m;
  exception when data_exception or integrity_constraint_violation then
    moved := null;
  end;
  if moved is null then
    moved := 0;
    kept := 0;
    for one in select k.key, k.after from unnest(keys, afters) k (key, after) loop
      begin
        select m.* into part from queue.move_heads(array[one.key], array[one.after]) m;
        moved := moved + part.moved;
        wait_ms := least(wait_ms, part.wait_ms);
        lanes := lanes || part.lanes;
        kept := kept + part.kept;
      exception when data_exception or integrity_constraint_violation then
        aside := array_remove(aside || queue.bury_blocked(one.key, sqlerrm), null);
      end;
    end loop;
  end if;
  more := hints >= unblock.most and moved > 0;
  -- If `most` hints were found, further hints may exist. The returned number then includes kept hints, so that the caller does not wait
  -- a second for the next poll.
  hints := case when hints < unblock.most then greatest(hints - kept, 0) else hints end;
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
end
$$;
