-- Maps (gathers). A map consists of parts, which are jobs of one type, and finishes when all parts have ended. A durable job spawns a map
-- with one step, or a flow contains the map as one node.
--
--   gather        written with the first parts, under the parent's lease (add_chunk) or with the flow (add_parts); updated by the
--                 consumer of hints (count_gathers)
--   map_batch     ids of the parts in their order, one row for each batch; written with the parts, and never changed
--   gather_part   one row for each unfinished part; deleted by the worker that consumes the hint of the part's end (consume_end_hints)
--   gather_hint   number of ended parts of a map; written by the session that deletes the parts' rows; consumed by any worker
--                 (count_gathers)
--
-- The session that records a part's end deletes the part's row and writes a hint with the number of deleted rows. Therefore a part counts
-- once, even if its end is reported several times. Only the consumer of the hints adds these numbers to the gather.
--
-- A restarted parent may reuse a map's name while parts of the earlier run are unfinished. `born` identifies the run to
-- which a part or hint belongs.
--
-- A map is finished once `need` is zero. `need` starts at one. Each part adds one, and its recorded end subtracts one. Closing the map
-- subtracts the initial one. No wake-up is lost, for the same reason as with signals (22_durable.sql): a count that reaches zero commits
-- together with a hint for the parent.

create table queue.gather (
  parent     bigint       not null,
  name       text         not null,            -- step that spawned the map
  born       bigint       not null default queue.next_key(),  -- distinguishes maps of the same name in different runs of the parent
  at         timestamptz  not null default clock_timestamp(),  -- time of the last count
  total      bigint,                           -- number of parts; null: the map is still open
  need       bigint       not null default 1,  -- number of parts not counted as finished, plus one while the map is open
  completed  bigint       not null default 0,
  dead       bigint       not null default 0,
  cancelled  bigint       not null default 0,  -- number of cancelled or expired parts
  most       integer,                          -- maximum number of parts running concurrently; null: unlimited
  room       bigint,                           -- number of further parts that may run now
  waits      boolean      not null default false,  -- whether parts wait until the map is opened (open_gather)
  looked     integer      not null default 0,  -- number of the next batch that housekeeping checks
  constraint gather_pkey primary key (parent, name),
  constraint gather_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) with (fillfactor = 50);

create table queue.map_batch (
  parent  bigint    not null,
  name    text      not null,
  chunk   integer   not null,
  ids     bigint[]  not null,
  constraint map_batch_pkey primary key (parent, name, chunk)
);
alter table queue.map_batch alter ids set storage external;

create table queue.gather_part (
  id      bigint   not null,
  parent  bigint   not null,
  born    bigint   not null,  -- run of the map
  nr      bigint   not null,  -- position in the map, starting at 0
  name    text     not null,
  held    boolean  not null,  -- whether the part is parked until other parts have ended
  constraint gather_part_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);
create index gather_part_held on queue.gather_part (parent, name, nr) where held;

create table queue.gather_hint (
  seq        bigint  not null default queue.next_key(),
  parent     bigint  not null,
  born       bigint  not null,  -- run of the map
  name       text    not null,
  completed  bigint  not null,
  dead       bigint  not null,
  cancelled  bigint  not null,
  freed      bigint  not null,  -- number of ended parts that were not parked, and therefore counted as running
  constraint gather_hint_order primary key (seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0);

-- Sums of the counts in the gather_hint rows that one statement has consumed for one map.
create type queue.gather_sum as (parent bigint, born bigint, name text, completed bigint, dead bigint, cancelled bigint, freed bigint);

-- Records the jobs in `ids` as the map's next batch of parts, starting at position `first`. The current transaction must have enqueued
-- these jobs. Returns false if the batch already exists. Parts beyond the maximum number of running parts are parked. If `waits` is true,
-- all parts are parked until open_gather starts them.
create function queue.insert_chunk(parent bigint, name text, chunk integer, first bigint, ids bigint[], most integer, waits boolean) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  free     bigint;
  waiting  bigint[] := '{}';
begin
  insert into queue.gather (parent, name, most, room, waits)
  values (insert_chunk.parent, insert_chunk.name, insert_chunk.most,
    case when insert_chunk.waits then 0 else insert_chunk.most end, insert_chunk.waits)
  on conflict do nothing;
  insert into queue.map_batch (parent, name, chunk, ids)
  values (insert_chunk.parent, insert_chunk.name, insert_chunk.chunk, insert_chunk.ids)
  on conflict do nothing;
  if not found then
    return false;
  end if;
  select g.room into free from queue.gather g where g.parent = insert_chunk.parent and g.name = insert_chunk.name;
  if free < cardinality(insert_chunk.ids) then
    with deleted as (
      delete from queue.ready r
      where r.ctid = any (array(select p.at from queue.ready_places((insert_chunk.ids)[greatest(free, 0) + 1:]) p))
      returning r.id, case when r.fair_id is null then r.lane else queue.paired_lane(r.lane) end as lane
    ), entered as (
      insert into queue.parked (id, lane, attempts, crashes, since, names)
      select g.id, g.lane, 0, 0, clock_timestamp(), '{}' from deleted g
      returning id
    )
    select coalesce(array_agg(p.id), '{}') into waiting from entered p;
  end if;
  insert into queue.gather_part (id, parent, born, nr, name, held)
  select u.id, insert_chunk.parent, g.born, insert_chunk.first + u.nr - 1, insert_chunk.name, u.id = any (waiting)
  from queue.gather g
  cross join unnest(insert_chunk.ids) with ordinality u (id, nr)
  where g.parent = insert_chunk.parent and g.name = insert_chunk.name;
  update queue.gather g
  set need = g.need + cardinality(insert_chunk.ids), at = clock_timestamp(),
    room = g.room - (cardinality(insert_chunk.ids) - cardinality(waiting))
  where g.parent = insert_chunk.parent and g.name = insert_chunk.name;
  return true;
end
$$;

-- Records a batch of parts as insert_chunk does, under the parent's lease. Returns null if the lease no longer holds the parent, or the
-- parent has a pending cancellation. If the batch already exists, returns false and the caller has to roll back. Must be the
-- transaction's last statement, so that the lease is locked only briefly.
create function queue.add_chunk(token uuid, parent bigint, name text, chunk integer, first bigint, ids bigint[], most integer) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform
  from queue.lease l
  where l.token = add_chunk.token and add_chunk.parent = any (l.ids)
    and add_chunk.parent = any (l.cancelling) is not true
  for share;
  if not found then
    return null;
  end if;
  return queue.insert_chunk(add_chunk.parent, add_chunk.name, add_chunk.chunk, add_chunk.first, add_chunk.ids, add_chunk.most, false);
end
$$;

-- Records a map's final number of parts, and journals the map as a step. Returns null if the lease no longer holds the parent, and false
-- if the number of spawned parts differs from `total`. A call repeated after a lost response changes nothing.
create function queue.close_gather(token uuid, parent bigint, attempt integer, name text, total bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  spawned  bigint;
begin
  perform
  from queue.lease l
  where l.token = close_gather.token and close_gather.parent = any (l.ids)
  for share;
  if not found then
    return null;
  end if;
  insert into queue.gather (parent, name)
  values (close_gather.parent, close_gather.name)
  on conflict do nothing;
  spawned := (
    select coalesce(sum(cardinality(b.ids)), 0) from queue.map_batch b where b.parent = close_gather.parent and b.name = close_gather.name
  );
  if spawned <> close_gather.total then
    return false;
  end if;
  update queue.gather g
  set need = g.need - 1, total = close_gather.total, at = clock_timestamp()
  where g.parent = close_gather.parent and g.name = close_gather.name and g.total is null;
  if found then
    insert into queue.step (id, name, attempt, at, ran_ms, output)
    values (close_gather.parent, close_gather.name, close_gather.attempt, statement_timestamp(), 0,
      jsonb_build_object('map', close_gather.total));
  end if;
  return true;
end
$$;

-- Makes parked parts of a map ready, up to the maximum number of running parts and at most a thousand per call. Wakes idle workers, and
-- returns the number of parts made ready. The transaction must have locked the map. Parts locked by other sessions are skipped. If parts
-- were skipped or a thousand parts were found, the function writes a hint, which makes count_gathers continue.
create function queue.release_parts(parent bigint, name text) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  free    bigint;
  life    bigint;
  found_  integer;
  moved   integer;
  lanes   bigint[];
begin
  select g.room, g.born into free, life from queue.gather g where g.parent = release_parts.parent and g.name = release_parts.name;
  if free is null or free <= 0 then
    return 0;
  end if;
  with next as materialized (
    select k.at, k.id, p.nr
    from (
      select p.id, p.nr from queue.gather_part p
      where p.parent = release_parts.parent and p.name = release_parts.name and p.held
        and p.born = life
      order by p.nr
    ) p
    cross join lateral (select k.ctid as at, k.id from queue.parked k where k.id = p.id offset 0) k
    limit least(free, 1000)
  ), counted as materialized (
    select p.id
    from queue.gather_part p
    where p.id = any (array(select n.id from next n))
    for update skip locked
  ), held as materialized (
    select k.ctid as at
    from queue.parked k
    where k.ctid = any (array(select n.at from next n where n.id in (select c.id from counted c)))
    for update skip locked
  ), entered as materialized (
    delete from queue.parked k
    where k.ctid = any (array(select h.at from held h))
    returning k.id, k.lane, k.attempts, k.crashes
  ), readied as (
    insert into queue.ready (lane, seq, id, attempts, crashes)
    select e.lane, queue.next_id(), e.id, e.attempts, e.crashes
    from (select e.* from entered e join next n on n.id = e.id order by n.nr) e
  ), noted as (
    update queue.gather_part p
    set held = false
    where p.id = any (array(select e.id from entered e))
  )
  select (select count(*) from next), count(*), array_agg(distinct e.lane) into found_, moved, lanes from entered e;
  update queue.gather g
  set room = g.room - moved
  where g.parent = release_parts.parent and g.name = release_parts.name;
  if moved < found_ or found_ = 1000 then
    insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
    values (release_parts.parent, life, release_parts.name, 0, 0, 0, 0);
  end if;
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
  return moved;
end
$$;

-- Consumes up to `most` rows of gather_hint from position `floor` on, and adds their counts to the maps. If a map's `need` reaches zero,
-- writes a hint for its parent. If a map has a maximum number of running parts, makes further parts ready. Returns the number of consumed
-- hints, the lowest hint, and the number of parts made ready. Never waits: the hints of a map locked by another session are kept.
-- Requires read committed, because each statement must see all commits before its start.
create function queue.count_gathers(floor bigint, most integer, out hints integer, out lowest bigint, out moved integer)
  returns record
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  sums    queue.gather_sum[];
  roomy   queue.gather_sum[];
begin
  with taken as materialized (
    delete from queue.gather_hint
    where ctid = any (array(
      select h.ctid
      from queue.gather_hint h
      where h.seq >= count_gathers.floor
      order by h.seq
      limit count_gathers.most
      for update skip locked
    ))
    returning gather_hint.*
  ), summed as (
    select row(t.parent, t.born, t.name, sum(t.completed), sum(t.dead), sum(t.cancelled), sum(t.freed))::queue.gather_sum as one
    from taken t
    group by t.parent, t.born, t.name
  )
  -- A hint whose counts are all zero only starts parts, and is written again if the parts are locked. Such a hint does not count as
  -- consumed, because the caller would otherwise keep polling at its shortest interval.
  select count(*) filter (where t.completed + t.dead + t.cancelled + t.freed > 0), min(t.seq), array(select s.one from summed s), 0
  into hints, lowest, sums, moved
  from taken t;
  if cardinality(sums) = 0 then
    return;
  end if;
  with known as materialized (
    select s.*, g.at_
    from unnest(sums) s
    cross join lateral (
      select g.ctid as at_
      from queue.gather g
      where g.parent = s.parent and g.name = s.name and g.born = s.born
      offset 0
    ) g
  ), held as materialized (
    select g.ctid as at_
    from queue.gather g
    where g.ctid = any (array(select k.at_ from known k))
    for update skip locked
  ), counted as (
    update queue.gather g
    set need = greatest(g.need - k.completed - k.dead - k.cancelled, 0), completed = g.completed + k.completed, dead = g.dead + k.dead,
      cancelled = g.cancelled + k.cancelled, room = g.room + k.freed, at = clock_timestamp()
    from known k
    where g.parent = k.parent and g.name = k.name and k.at_ = any (array(select h.at_ from held h))
    returning g.parent, g.born, g.name, g.need, g.room
  ), left_behind as (
    insert into queue.gather_hint (parent, born, name, completed, dead, cancelled, freed)
    select k.parent, k.born, k.name, k.completed, k.dead, k.cancelled, k.freed
    from known k
    where k.at_ <> all (array(select h.at_ from held h))
    returning 1
  ), hinted as (
    insert into queue.signal_hint (id)
    select distinct c.parent
    from counted c
    where c.need = 0
  )
  select greatest(hints - (select count(*) from left_behind), 0),
    array(select row(c.parent, c.born, c.name, 0, 0, 0, 0)::queue.gather_sum from counted c where c.room > 0)
  into hints, roomy;
  if cardinality(roomy) > 0 then
    moved := (select sum(queue.release_parts(r.parent, r.name)) from unnest(roomy) r);
  end if;
end
$$;

-- Maintenance and display of maps. Maps of deleted jobs are deleted, and stalled maps are recounted.

-- Deletes the map records of `parents`. The parts continue without a parent. Parked parts are made ready first, because no other function
-- does so later. Parked parts that wait for open_gather (`waits`) are cancelled instead, because the flow node ended without
-- starting them.
create function queue.forget_gathers(parents bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  moved  bigint;
begin
  perform
  from queue.gather g
  where g.parent = any (forget_gathers.parents)
  order by g.parent, g.name
  for update;
  if found then
    update queue.gather g
    set room = 2147483647
    where g.parent = any (forget_gathers.parents) and g.room is not null;
    perform queue.cancel_waiting_all(array(
      select p.id
      from queue.gather g
      join queue.gather_part p on p.parent = g.parent and p.name = g.name and p.held
      where g.parent = any (forget_gathers.parents) and g.waits
    ));
    loop
      moved := (
        select sum(queue.release_parts(g.parent, g.name))
        from queue.gather g
        where g.parent = any (forget_gathers.parents) and g.room is not null
      );
      exit when coalesce(moved, 0) = 0;
    end loop;
    -- Skips a part's row if another session is recording the part's end, because that session deletes the row.
    delete from queue.gather_part p
    where p.ctid = any (array(
      select o.ctid
      from queue.gather_part o
      where o.id in (select u.id from queue.map_batch b cross join lateral unnest(b.ids) u (id) where b.parent = any (forget_gathers.parents))
      for update skip locked
    ));
    delete from queue.map_batch b where b.parent = any (forget_gathers.parents);
    delete from queue.gather g where g.parent = any (forget_gathers.parents);
  end if;
end
$$;

-- Recounts the unfinished parts of a map, under the map's lock and in one snapshot, and returns the new `need`. First writes hints for
-- the finished parts of ten batches, starting after the batches of the previous call. Returns null if another session has locked the map.
-- If the map has more than a hundred batches, keeps the old count, because reading a million parts would hold the lock for too long.
create function queue.recount_gather(parent bigint, name text) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  place  integer;
  late   bigint[];
  left_  bigint;
begin
  select g.looked into place
  from queue.gather g
  where g.parent = recount_gather.parent and g.name = recount_gather.name
  for update skip locked;
  if not found then
    return null;
  end if;
  late := array(
    select u.id
    from queue.map_batch b
    cross join lateral unnest(b.ids) u (id)
    where b.parent = recount_gather.parent and b.name = recount_gather.name and b.chunk >= place and b.chunk < place + 10
  );
  perform queue.add_end_hints(late);
  update queue.gather g
  set at = clock_timestamp(),
    need = case when (
        select count(*) from queue.map_batch b where b.parent = recount_gather.parent and b.name = recount_gather.name
      ) > 100 then g.need else (g.total is null)::int
      + (
        select count(*)
        from queue.map_batch b
        cross join lateral unnest(b.ids) u (id)
        cross join lateral (select p.id from queue.gather_part p where p.id = u.id offset 0) p
        where b.parent = recount_gather.parent and b.name = recount_gather.name
      ) + (
        select coalesce(sum(h.completed + h.dead + h.cancelled), 0)
        from queue.gather_hint h
        where h.parent = recount_gather.parent and h.name = recount_gather.name
          and h.born = g.born
      ) end,
    looked = case when exists (
      select from queue.map_batch b where b.parent = recount_gather.parent and b.name = recount_gather.name and b.chunk >= place + 10
    ) then place + 10 else 0 end
  where g.parent = recount_gather.parent and g.name = recount_gather.name
  returning g.need into left_;
  if left_ = 0 then
    insert into queue.signal_hint (id) values (recount_gather.parent);
  end if;
  perform queue.release_parts(recount_gather.parent, recount_gather.name);
  return left_;
end
$$;

-- Checks up to `most` maps of jobs with ids above `after`. Deletes the maps of deleted jobs, and recounts up to three maps that have not
-- changed for five minutes. Returns the id of the last checked job, or null if no job is left. Skips maps locked by other sessions.
create function queue.prune_gathers(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last  bigint;
begin
  select max(p.parent) into last
  from (select g.parent from queue.gather g where g.parent > prune_gathers.after order by g.parent limit prune_gathers.most) p;
  perform queue.forget_gathers(array(
    select g.parent
    from queue.gather g
    where g.parent > prune_gathers.after and g.parent <= last
      and not exists (select from queue.job j where j.id = g.parent)
    for update of g skip locked
  ));
  perform queue.recount_gather(s.parent, s.name)
  from (
    select g.parent, g.name
    from queue.gather g
    where g.parent > prune_gathers.after and g.parent <= last and g.need > 0
      and not g.waits
      and g.at < clock_timestamp() - interval '5 min'
    order by g.at
    limit 3
  ) s;
  return last;
end
$$;

-- Returns the first thousand maps of an existing job, sorted by name. `need` is the number of parts not counted as finished. `total` is
-- null while the map is open.
create function queue.gathers(job bigint)
  returns table (name text, total bigint, need bigint, completed bigint, dead bigint, cancelled bigint, most integer)
  language sql stable
begin atomic
  select g.name, g.total, g.need - (g.total is null)::int, g.completed, g.dead, g.cancelled, g.most
  from queue.gather g
  where g.parent = gathers.job
    and exists (select from queue.job j where j.id = gathers.job)
  order by g.name
  limit 1000;
end;
