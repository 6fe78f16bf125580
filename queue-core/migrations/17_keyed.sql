-- Per-key limits, whose values apply to each fairness key separately. Jobs under such a limit wait in fair queues, one for each key
-- (16_fair_queues.sql), and each fair queue has its own permits and starts.
--
-- claim_keyed claims the jobs under these limits. Its search skips a fair queue without free permits with one probe, so the jobs queued
-- in the fair queue do not add to the cost. All fair queues of a limit share one limiter, whose lock serializes the claims under the limit.
-- A claim therefore finds in permit the jobs that earlier claims have taken, each with its fair queue.

-- Operators' concurrency settings for single keys. Such a setting overrides the limit's concurrency, whether that concurrency was declared
-- in code or set by an operator.
create table queue.key_bound (
  name         text         not null,
  fair_id      bigint       not null,
  key          text         not null,
  concurrency  integer      not null,
  since        timestamptz  not null default now(),
  set_by       text         not null default session_user,
  constraint key_bound_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint key_bound_pkey primary key (name, fair_id),
  constraint key_bound_fair_id_is_its_hash check (fair_id = queue.fair_id_of(key)),
  constraint key_bound_name_is_a_name check (name ~ '^(type:|queue:)?[A-Za-z0-9_.:-]{1,64}$'),
  constraint key_bound_concurrency_in_range check (concurrency between 0 and 1000000)
);

-- Sets the concurrency of one key under a per-key limit. Takes effect with the next claim. A null concurrency restores the limit's value.
create function queue.set_limit_key(name text, key text, concurrency integer default null) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
begin
  lock table queue.paused in share row exclusive mode;
  if set_limit_key.concurrency is null then
    delete from queue.key_bound k
    where k.name = set_limit_key.name and k.fair_id = queue.fair_id_of(set_limit_key.key);
  else
    insert into queue.key_bound as k (name, fair_id, key, concurrency)
    values (set_limit_key.name, queue.fair_id_of(set_limit_key.key), set_limit_key.key, set_limit_key.concurrency)
    on conflict on constraint key_bound_pkey do update
    set concurrency = excluded.concurrency, since = excluded.since, set_by = excluded.set_by;
  end if;
  update queue.bound b set revision = nextval('queue.pause_seq')
  where b.name = set_limit_key.name;
  perform queue.notify('wake', '!control');
end
$$;

-- Returns one row for each per-key limit in `limit_ids` and each fair queue in `fair_ids`. `free` is the number of jobs that may start now
-- (null: unlimited), and `wait_ms` is the delay in ms until the next start (null: no known delay). Reads each limit's permits from its
-- floor on, or from the first permit if the floor is null.
create function queue.free_fair_permits(limit_ids bigint[], floors bigint[], fair_ids bigint[]) returns table (
    limit_id bigint, fair_id bigint, free bigint, wait_ms float8
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  at  bigint := queue.clock_ms();
begin
  return query
  with asked as materialized (
    select distinct a.fair_id from unnest(free_fair_permits.fair_ids) a (fair_id)
  ), b as materialized (
    select b.limit_id, b.name, b.concurrency, b.starts, b.period_ms, b.burst, f.floor
    from unnest(free_fair_permits.limit_ids, free_fair_permits.floors) f (limit_id, floor)
    join queue.bound_in_force b on b.limit_id = f.limit_id and b.keyed
  ), held as materialized (
    select b.limit_id, u.fair_id, count(*) as n
    from b
    join queue.permit h on h.limit_id = b.limit_id
      and h.place >= coalesce(b.floor, 0)
    cross join lateral unnest(h.fair_ids) u (fair_id)
    where case when u.fair_id in (select a.fair_id from asked a) then true end
    group by b.limit_id, u.fair_id
  )
  select b.limit_id, a.fair_id, least(coalesce(k.concurrency, b.concurrency) - coalesce(h.n, 0), w.free), w.wait_ms
  from asked a
  cross join b
  left join held h on h.limit_id = b.limit_id and h.fair_id = a.fair_id
  left join queue.key_bound k on k.name = b.name and k.fair_id = a.fair_id
  left join lateral (
    select s.free, s.wait_ms
    from queue.key_starts(b.limit_id, a.fair_id, b.starts, b.period_ms, b.burst, at) s
    where b.starts is not null offset 0
  ) w on true;
end
$$;

-- Returns the number of a fair queue's starts after `since`, and the cumulative total. Reads only the first and the last row after
-- `since`.
create function queue.starts_since(limit_id bigint, fair_id bigint, since bigint) returns table (n bigint, total bigint)
  language sql stable
begin atomic
  select coalesce(w.total - w.before, 0), w.total
  from (values (1)) one
  left join lateral (
    select f.before, l.total
    from (
      select r.total - r.n as before
      from queue.rate r
      where r.limit_id = starts_since.limit_id and r.fair_id = starts_since.fair_id and r.at_ms > starts_since.since
      order by r.at_ms
      limit 1
    ) f
    cross join lateral (
      select r.total
      from queue.rate r
      where r.limit_id = starts_since.limit_id and r.fair_id = starts_since.fair_id and r.at_ms > starts_since.since
      order by r.at_ms desc
      limit 1
    ) l
  ) w on true;
end;

-- Returns how many jobs of a fair queue may start now under a rate. If no job may start, also returns the delay in ms until the next
-- start.
create function queue.key_starts(limit_id bigint, fair_id bigint, starts integer, period_ms bigint, burst integer, at bigint)
  returns table (free bigint, wait_ms float8)
  language sql stable
begin atomic
  select min(m.starts - u.n), max(o.wait_ms)
  from (values (key_starts.starts, key_starts.period_ms), (key_starts.burst, key_starts.period_ms * key_starts.burst / key_starts.starts))
    m (starts, period_ms)
  cross join lateral queue.starts_since(key_starts.limit_id, key_starts.fair_id, key_starts.at - m.period_ms) u
  left join lateral (
    select (r.at_ms + m.period_ms - key_starts.at)::float8 as wait_ms
    from queue.rate r
    where r.limit_id = key_starts.limit_id and r.fair_id = key_starts.fair_id and r.at_ms > key_starts.at - m.period_ms
      and r.total > u.total - m.starts
    order by r.at_ms
    limit 1
  ) o on u.n >= m.starts
  where m.starts is not null;
end;

-- Records the fair queues in which a worker found no free permit (`wanted`), so that the end of a job in a recorded fair queue sends a
-- notification. Also sends notifications for recorded fair queues that have free permits now. At most a hundred fair queues per limit are
-- recorded. Workers find free permits of other fair queues without a notification, within a second.
create function queue.notify_free_fair_queues(limit_ids bigint[], floors bigint[], wanted bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  record;
begin
  for one in
    with permits as materialized (
      select r.limit_id, r.fair_id, coalesce(r.free, 1) > 0 as is_free, r.wait_ms
      from queue.free_fair_permits(notify_free_fair_queues.limit_ids, notify_free_fair_queues.floors,
        notify_free_fair_queues.wanted ||
          array(select l from queue.limiter g cross join lateral unnest(g.fair_ids) l where g.limit_id = any (notify_free_fair_queues.limit_ids))) r
    ), news as materialized (
      select g.limit_id,
        array(
          select r.fair_id
          from permits r
          where r.limit_id = g.limit_id and not r.is_free
            and ((r.wait_ms is null and r.fair_id in (select unnest(notify_free_fair_queues.wanted))) or r.fair_id in (select unnest(g.fair_ids)))
          order by not r.fair_id = any (g.fair_ids)
          limit 100
        ) as fair_ids,
        exists (select from unnest(g.fair_ids) o (fair_id) join permits r on r.limit_id = g.limit_id and r.fair_id = o.fair_id and r.is_free) as freed
      from queue.limiter g
      where g.limit_id = any (notify_free_fair_queues.limit_ids)
    )
    update queue.limiter g set fair_ids = n.fair_ids
    from news n
    where g.limit_id = n.limit_id and (n.freed or not g.fair_ids @> n.fair_ids)
    returning g.limit_id, n.freed
  loop
    if one.freed then
      perform queue.notify('wake', '!permit ' || one.limit_id);
    end if;
  end loop;
end
$$;

-- Returns up to `keys` keys of a per-key limit that have a setting, hold permits, or have waiting jobs. Keys with the most permits come
-- first, then keys with the most waiting jobs. The text of a key is known only if an operator has set a limit or weight for the key;
-- otherwise only its fair queue is returned. At most `most` waiting jobs are counted in total, the last jobs of each lane first. SECURITY
-- DEFINER, because readers may not read the tokens of leases.
create function queue.limit_keys(name text, keys integer default 20, most integer default 10000)
  returns table (fair_id bigint, key text, concurrency integer, used bigint, waiting bigint, partial boolean, next_ms float8)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  of_limit  bigint := queue.hash(limit_keys.name);
begin
  return query
  with used as materialized (
    select u.fair_id, count(*) as jobs
    from queue.permit h
    cross join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l
    cross join lateral (select u.fair_id from unnest(h.ids, h.fair_ids) u (id, fair_id) join unnest(l.ids) s (id) on s.id = u.id) u
    where h.limit_id = of_limit
    group by u.fair_id
  ), seen as materialized (
    select w.fair_id, count(*) as jobs
    from (
      select r.fair_id
      from (
        select distinct queue.paired_lane(l.lane) as lane from queue.lane l where not l.paired and queue.covers(limit_keys.name, l.queue, l.job_type)
      ) l
      cross join lateral (select r.fair_id from queue.ready r where r.lane = l.lane order by r.seq desc limit most + 1) r
      limit most + 1
    ) w
    group by w.fair_id
  ), input as materialized (
    select k.fair_id, k.key, k.concurrency from queue.key_bound k where k.name = limit_keys.name
  )
  select a.fair_id, coalesce(k.key, (select w.fair from queue.weight w where w.fair_id = a.fair_id limit 1)), k.concurrency, coalesce(u.jobs, 0),
    coalesce(w.jobs, 0), coalesce((select sum(s.jobs) from seen s) > most, false),
    (select max(r.wait_ms) from queue.free_fair_permits(array[of_limit], null, array[a.fair_id]) r where r.free <= 0)
  from (select u.fair_id from used u union select w.fair_id from seen w union select k.fair_id from input k) a
  left join used u on u.fair_id = a.fair_id
  left join seen w on w.fair_id = a.fair_id
  left join input k on k.fair_id = a.fair_id
  order by coalesce(u.jobs, 0) desc, coalesce(w.jobs, 0) desc, a.fair_id
  limit keys;
end
$$;

-- Returns the limits that prevent a ready job from starting now. `used` is the number of held permits of the limit (or of the job's key),
-- and `concurrency` is their maximum. `wait_ms` is the delay in ms until the next start. `awaits` is the number of workers that have not
-- acknowledged the limit yet. The text of the key is known only if an operator has set a limit or weight for the key. SECURITY DEFINER,
-- because readers may not read all columns of permit.
create function queue.waits_for(id bigint)
  returns table (name text, keyed boolean, fair_id bigint, key text, used bigint, concurrency integer, wait_ms float8, awaits bigint)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return query
  select b.name, b.keyed, j.fair_id, coalesce(k.key, (select w.fair from queue.weight w where w.fair_id = j.fair_id and b.keyed limit 1)), h.n,
    coalesce(k.concurrency, b.concurrency), greatest(r.wait_ms, l.wait_ms), a.n
  from (select j.lane, coalesce(j.fair_id, 0) as fair_id from queue.job j where j.id = waits_for.id) j
  cross join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d
  join queue.bound_in_force b on queue.covers(b.name, d.queue, d.job_type)
  join queue.limiter g on g.limit_id = b.limit_id
  cross join lateral queue.free_permits(array[b.limit_id], null) r
  left join lateral queue.free_fair_permits(array[b.limit_id], null, array[j.fair_id]) l on b.keyed
  left join queue.key_bound k on b.keyed and k.name = b.name and k.fair_id = j.fair_id
  cross join lateral (
    select coalesce(sum(case when b.keyed then (select count(*) from unnest(h.fair_ids) u where u = j.fair_id) else h.n end), 0)::bigint as n
    from queue.permit h
    where h.limit_id = b.limit_id
  ) h
  cross join lateral (select count(*) as n from queue.limit_awaits(b.number) where g.adopted < b.number) a
  where r.free <= 0 or l.free <= 0 or a.n > 0
  order by b.name;
end
$$;

-- Returns up to `limits` limits that have no free permit and whose first ready job has waited for at least `waited_ms`, longest waiting
-- first. For a per-key limit, returns one row for each key without a free permit. Reads the first job of each lane, and looks up the limits
-- that cover the lane by their names. For a per-key limit, checks the keys of the first `jobs` jobs in each lane, and the `jobs` keys with
-- the lowest individual settings: at most 50 * `jobs` jobs and 50 * `jobs` keys in total. At most `most` ready jobs are counted per
-- returned row. SECURITY DEFINER, because readers may not read the tokens of leases.
create function queue.full_limits(waited_ms float8, limits integer default 20, jobs integer default 1000, most integer default 10000)
  returns table (
    name text, fair_id bigint, key text, used bigint, concurrency integer, waiting bigint, partial boolean, first_ms float8
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  until  bigint := queue.id_at(clock_timestamp() - least(greatest(full_limits.waited_ms, 0), 3e12) * interval '1 millisecond');
begin
  if not exists (select from queue.bound) then
    return;
  end if;
  return query
  with covered as materialized (
    select b.name, b.limit_id, b.keyed, b.concurrency, l.lane, coalesce(p.seq, 0) as floor
    from (select distinct l.lane, l.queue, queue.type_of(l.job_type) as job_type, l.paired from queue.lane l) l
    cross join lateral (
      select 'queue:' || l.queue as name
      union
      select 'type:' || l.job_type
      union
      select t.name from queue.bound_type t where t.job_type = l.job_type
    ) n
    join queue.bound_in_force b on b.name = n.name
    left join queue.lane_floors() p on p.lane = l.lane
    where (l.paired or not b.keyed) and (b.concurrency is not null or exists (select from queue.key_bound k where k.name = b.name))
  ), seen as materialized (
    select c.name, c.limit_id, null::bigint as fair_id, min(r.seq) as seq
    from covered c
    cross join lateral (
      select r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor and r.seq <= until order by r.seq limit 1
    ) r
    where not c.keyed
    group by c.name, c.limit_id
    union all
    select k.name, k.limit_id, k.fair_id, min(k.seq)
    from (
      (select c.name, c.limit_id, r.fair_id, r.seq
      from covered c
      cross join lateral (
        select r.fair_id, r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor and r.seq <= until order by r.seq limit full_limits.jobs
      ) r
      where c.keyed and r.fair_id is not null
      limit 50 * full_limits.jobs)
      union all
      select k.name, k.limit_id, k.fair_id, r.seq
      from (
        select c.name, c.limit_id, c.lane, c.floor, k.fair_id
        from (select k.name, k.fair_id from queue.key_bound k order by k.concurrency, k.name, k.fair_id limit full_limits.jobs) k
        join covered c on c.name = k.name
        where c.keyed
        limit 50 * full_limits.jobs
      ) k
      cross join lateral (
        select r.seq
        from queue.ready r
        where r.lane = k.lane and r.fair_id = k.fair_id and r.seq >= k.floor and r.seq <= until
        order by r.seq
        limit 1
      ) r
    ) k
    group by k.name, k.limit_id, k.fair_id
  ), held as materialized (
    select s.limit_id, null::bigint as fair_id, sum(least(h.n, cardinality(l.ids)))::bigint as jobs
    from (select distinct s.limit_id from seen s where s.fair_id is null) s
    join queue.permit h on h.limit_id = s.limit_id
    join queue.lease l on l.token = h.token
    group by s.limit_id
    union all
    select s.limit_id, u.fair_id, count(*)
    from (select distinct s.limit_id from seen s where s.fair_id is not null) s
    join queue.permit h on h.limit_id = s.limit_id
    cross join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l
    cross join lateral (select u.fair_id from unnest(h.ids, h.fair_ids) u (id, fair_id) join unnest(l.ids) i (id) on i.id = u.id) u
    group by s.limit_id, u.fair_id
  ), full_ as materialized (
    select s.name, s.fair_id, coalesce(k.key, (select w.fair from queue.weight w where w.fair_id = s.fair_id limit 1)) as key,
      coalesce(h.jobs, 0) as used, coalesce(k.concurrency, b.concurrency) as concurrency, s.seq
    from seen s
    join queue.bound_in_force b on b.name = s.name
    left join queue.key_bound k on k.name = s.name and k.fair_id = s.fair_id
    left join held h on h.limit_id = s.limit_id and h.fair_id is not distinct from s.fair_id
    where coalesce(h.jobs, 0) >= coalesce(k.concurrency, b.concurrency)
    order by s.seq, s.name, s.fair_id
    limit full_limits.limits
  )
  select f.name, f.fair_id, f.key, f.used, f.concurrency, least(w.jobs, most), w.jobs > most,
    extract(epoch from clock_timestamp() - queue.enqueued_at(f.seq))::float8 * 1000
  from full_ f
  cross join lateral (
    select count(*) as jobs
    from (
      -- The index is read from the end, because dead entries accumulate at the front.
      (select
      from covered c
      cross join lateral (select from queue.ready r where r.lane = c.lane order by r.seq desc limit most + 1) r
      where f.fair_id is null and c.name = f.name
      limit most + 1)
      union all
      (select
      from covered c
      cross join lateral (select from queue.ready r where r.lane = c.lane and r.fair_id = f.fair_id order by r.seq desc limit most + 1) r
      where f.fair_id is not null and c.name = f.name
      limit most + 1)
    ) w
  ) w
  order by f.seq, f.name, f.fair_id;
end
$$;

-- Job selection for claims under per-key limits.
--
-- A claim first locks the limiters and then searches the fair queues. The free permits of each fair queue are therefore known during the
-- search, and a fair queue without free permits is neither locked nor read. Every statement covers all fair queues at once.

-- Updates permits from leases as queue.read_permits does, but also for per-key limits. Releases the permits of jobs that have left their
-- lease.
create function queue.read_keyed(limit_ids bigint[], floors bigint[], tokens uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with still as materialized (
    select h.limit_id, h.place, h.n, h.ids, h.fair_ids, l.ids as listed
    from unnest(read_keyed.limit_ids, read_keyed.floors) f (limit_id, floor)
    join queue.permit h on h.limit_id = f.limit_id
      and h.place >= coalesce(f.floor, 0)
    left join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l on true
    where read_keyed.tokens is null or h.token = any (read_keyed.tokens)
  ), deleted as (
    delete from queue.permit h using still s
    where h.limit_id = s.limit_id and h.place = s.place
      and s.listed is null
  ), shrunk as materialized (
    select s.limit_id, s.place, k.n, k.ids, k.fair_ids
    from still s
    cross join lateral (
      select count(*) as n, array_agg(u.id) filter (where s.ids is not null) as ids, array_agg(u.fair_id) filter (where s.ids is not null) as fair_ids
      from unnest(coalesce(s.ids, s.listed), s.fair_ids) u (id, fair_id)
      join unnest(s.listed) o (id) on o.id = u.id
    ) k
    where cardinality(s.listed) <> s.n
  )
  update queue.permit h set n = k.n, ids = k.ids, fair_ids = k.fair_ids from shrunk k
  where h.limit_id = k.limit_id and h.place = k.place
    and k.n < h.n;
end
$$;

-- Locks and returns entries in the fair queues of a plain lane, in the service order of queue.choose_fair. Returns at most as many entries
-- of a fair queue as it has free permits. The caller must have locked the limiters of `limit_ids`, so that the permits stay free. `taken`
-- contains the fair queues of the jobs that this claim has already taken from other lanes.
--
-- Searches the fair queues after `after`, and then from the lowest fair queue on, until enough jobs are found. Skips at most about 2,500
-- fair queues without free permits. If no searched fair queue had free permits, checks the most recent entries, so a job of a new key
-- does not have to wait.
--
-- Returns the entries with their fair queues, up to a hundred fair queues without free permits, and the last searched fair queue.
-- `complete` means that all fair queues were searched and no eligible entry was left.
create function queue.choose_keyed(
  lane bigint, after bigint, quantum integer, most integer, limit_ids bigint[], floors bigint[], taken bigint[],
  out ats tid[], out fair_ids bigint[], out passed bigint[], out reached bigint, out complete boolean
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  twin      bigint := queue.paired_lane(choose_keyed.lane);
  now_ms    bigint := queue.clock_ms();
  -- Job type of the lane if any key in the store has a weight, otherwise null.
  weighted  text := (
    select queue.type_of(l.job_type) from queue.lane l where l.lane = choose_keyed.lane and exists (select from queue.weight) limit 1
  );
  -- Whether any key has an individual setting.
  has_own   boolean := exists (select from queue.key_bound);
  first     bigint := choose_keyed.after;  -- the fair queues above this one are searched next
  edge      bigint := 9223372036854775807;
  wraps     boolean := true;               -- whether fair queues up to `after` remain to be searched
  wanted    integer;
  sight     integer;
  used      integer := 0;                  -- number of fair queues from which jobs were taken
  had       record;
  d_ids     bigint[] := '{}';              -- fair queues with free permits for further turns; d_free and d_weights belong to them
  d_free    bigint[] := '{}';
  d_weights integer[] := '{}';
  share     integer;
begin
  ats := '{}';
  fair_ids := '{}';
  passed := '{}';
  reached := choose_keyed.after;
  for round in 1..7 loop
    exit when round = 7 and cardinality(ats) > 0;
    -- Number of fair queues needed for the remaining jobs, if each fair queue yields as many jobs as the previous ones on average. Later
    -- rounds search more fair queues than needed, because many fair queues may have no free permits.
    wanted := greatest(1, ceil((choose_keyed.most - cardinality(ats)) / case
      when used = 0 then choose_keyed.quantum else greatest(1, cardinality(ats)::float8 / used) end));
    sight := case when round = 1 then wanted else greatest(500, wanted) end;
    with recursive b as materialized (
      select b.limit_id, b.name, b.concurrency, b.starts, b.period_ms, b.burst, f.floor
      from unnest(choose_keyed.limit_ids, choose_keyed.floors) f (limit_id, floor)
      join queue.bound_in_force b on b.limit_id = f.limit_id and b.keyed
    ), near as materialized (
      -- Fair queues with few jobs are read sequentially, because reading two entries costs less than a probe.
      select distinct on (n.fair_id) n.fair_id, n.at
      from (
        select r.fair_id, r.seq, r.ctid as at
        from queue.ready r
        where r.lane = twin and r.fair_id > first and r.fair_id <= edge and round < 7
        order by r.fair_id, r.seq
        limit 2 * sight
      ) n
      order by n.fair_id, n.seq
      limit sight
    ), far (fair_id, at) as (
      -- Fair queues with many jobs are read with one probe each.
      (
        select r.fair_id, r.ctid
        from queue.ready r
        where r.lane = twin and r.fair_id > (select max(n.fair_id) from near n) and r.fair_id <= edge and (select count(*) from near) < sight
        order by r.fair_id, r.seq
        limit 1
      )
      union all
      select n.fair_id, n.ctid
      from far f
      cross join lateral (
        select r.fair_id, r.ctid from queue.ready r where r.lane = twin and r.fair_id > f.fair_id and r.fair_id <= edge order by 1, r.seq limit 1
      ) n
    ), late as materialized (
      select distinct n.fair_id
      from (select r.fair_id from queue.ready r where r.lane = twin and round = 7 order by r.seq desc limit 500) n
    ), found as materialized (
      select n.fair_id, n.at from near n
      union all
      select l.fair_id, null from late l
      union all
      (select f.fair_id, f.at from far f limit sight - (select count(*) from near))
    ), held as materialized (
      select h.limit_id, h.fair_id, count(*) as n, count(*) filter (where h.is_taken) as taken
      from (
        select b.limit_id, u.fair_id, false as is_taken
        from b
        join queue.permit h on h.limit_id = b.limit_id
          and h.place >= coalesce(b.floor, 0)
        cross join lateral unnest(h.fair_ids) u (fair_id)
        union all
        select b.limit_id, u.fair_id, true from b cross join unnest(choose_keyed.taken) u (fair_id)
      ) h
      -- The CASE forces a hash lookup, regardless of the planner's row estimate.
      where case when h.fair_id in (select f.fair_id from found f) then true end
      group by h.limit_id, h.fair_id
    ), vacant as materialized (
      select f.fair_id, min(f.at) as at,
        min(least(coalesce(k.concurrency, b.concurrency) - coalesce(h.n, 0),
          coalesce(w.free, least(b.starts, b.burst)) - coalesce(h.taken, 0))) as free
      from found f
      cross join b
      left join held h on h.limit_id = b.limit_id and h.fair_id = f.fair_id
      left join queue.key_bound k on has_own and k.name = b.name and k.fair_id = f.fair_id
      left join lateral (
        -- Inlines queue.starts_since, and reads the first start only if there is a start before the last.
        select least(
          b.starts - l.total + case when l.total > l.n then (
            select r.total - r.n from queue.rate r
            where r.limit_id = b.limit_id and r.fair_id = f.fair_id and r.at_ms > now_ms - b.period_ms order by r.at_ms limit 1
          ) else 0 end,
          case when b.burst is not null then b.burst - coalesce(l.total - (
            select r.total - r.n from queue.rate r
            where r.limit_id = b.limit_id and r.fair_id = f.fair_id and r.at_ms > now_ms - b.period_ms * b.burst / b.starts order by r.at_ms limit 1
          ), 0) end
        ) as free
        from (
          select r.total, r.n
          from queue.rate r
          where r.limit_id = b.limit_id and r.fair_id = f.fair_id and r.at_ms > now_ms - b.period_ms and b.starts is not null
          order by r.at_ms desc
          limit 1
        ) l
      ) w on true
      group by f.fair_id
    ), able as materialized (
      select r.fair_id, r.at, r.free, case when weighted is null then 1 else
        coalesce((select w.weight from queue.weight w where w.job_type = weighted and w.fair_id = r.fair_id), 1) end as weight
      from vacant r
      where coalesce(r.free, 1) > 0
      order by r.fair_id
      limit wanted
    ), one as materialized (
      -- If each fair queue yields one job per turn, locks the first entries found above instead of searching the fair queues again.
      select r.ctid as at, a.fair_id
      from able a
      join queue.ready r on r.ctid = a.at
      where choose_keyed.quantum = 1 and weighted is null
      for update of r skip locked
    ), entry as materialized (
      select o.at, o.fair_id from one o
      union all
      select p.at, a.fair_id
      from able a
      cross join lateral (
        select r.ctid as at, r.seq
        from queue.ready r
        -- The condition is a range instead of `=`: with the ordering by fair queue, the planner then uses the index of fair queues,
        -- regardless of its row estimate.
        where r.lane = twin and r.fair_id >= a.fair_id and r.fair_id <= a.fair_id
        order by r.fair_id, r.seq
        limit least(a.free, choose_keyed.quantum * a.weight)
        for update skip locked
      ) p
      where not exists (select from one o where o.fair_id = a.fair_id)
      limit choose_keyed.most - cardinality(ats)
    )
    select e.ats, e.fair_ids, a.able, a.deep, a.deep_free, a.deep_weights, f.found, f.last_found, a.last_able,
      array(select r.fair_id from vacant r where r.free <= 0 limit 100) as passed
    into had
    from (select coalesce(array_agg(e.at), '{}') as ats, coalesce(array_agg(e.fair_id), '{}') as fair_ids from entry e) e
    cross join (
      select count(*) as able, max(a.fair_id) as last_able, array_agg(a.fair_id) filter (where a.is_deep) as deep,
        array_agg(a.free) filter (where a.is_deep) as deep_free, array_agg(a.weight) filter (where a.is_deep) as deep_weights
      from (select a.fair_id, a.free, a.weight, coalesce(a.free, 1000000) > choose_keyed.quantum * a.weight as is_deep from able a) a
    ) a
    cross join (select count(*) as found, max(f.fair_id) as last_found from found f) f;
    ats := ats || had.ats;
    fair_ids := fair_ids || had.fair_ids;
    passed := (passed || had.passed)[1:100];
    exit when round = 7;
    d_ids := d_ids || had.deep;
    d_free := d_free || had.deep_free;
    d_weights := d_weights || had.deep_weights;
    if cardinality(ats) >= choose_keyed.most then
      reached := case when choose_keyed.quantum = 1 and weighted is null then had.last_able else fair_ids[cardinality(fair_ids)] end;
      complete := false;
      return;
    end if;
    reached := coalesce(case when had.able = wanted then had.last_able else had.last_found end, reached);
    used := used + had.able;
    first := reached;
    complete := had.found < sight and had.able < wanted;
    if complete then
      exit when not wraps;
      wraps := false;
      first := -9223372036854775808;
      edge := choose_keyed.after;
      complete := false;
    end if;
  end loop;
  if not complete or cardinality(d_ids) = 0 then
    return;
  end if;
  -- All fair queues have been found, so they share the remaining capacity.
  share := choose_keyed.quantum + ceil((choose_keyed.most - cardinality(ats)) * 2.0 / (select sum(w) from unnest(d_weights) w));
  select coalesce(array_agg(t.at), '{}') as ats, coalesce(array_agg(t.fair_id), '{}') as fair_ids,
    coalesce(bool_or(t.nth = t.upto and t.has_more), false) as cut
  into had
  from (
    select p.at, k.fair_id, k.upto, k.has_more, row_number() over (partition by k.place order by p.seq) + choose_keyed.quantum * k.weight as nth
    from (
      select d.fair_id, d.weight, d.place, least(d.free, share * d.weight) as upto, share * d.weight < coalesce(d.free, 1000000) as has_more
      from unnest(d_ids, d_free, d_weights) with ordinality d (fair_id, free, weight, place)
    ) k
    cross join lateral (
      select r.ctid as at, r.seq
      from queue.ready r
      where r.lane = twin and r.fair_id >= k.fair_id and r.fair_id <= k.fair_id
        -- Entries are compared by ctid instead of position, because another session may have inserted an entry at an earlier position.
        and r.ctid <> all (choose_keyed.ats)
      order by r.fair_id, r.seq
      limit k.upto - choose_keyed.quantum * k.weight
      for update skip locked
    ) p
    order by (row_number() over (partition by k.place order by p.seq) - 1) / (choose_keyed.quantum * k.weight), k.place, p.seq
    limit choose_keyed.most - cardinality(ats)
  ) t;
  ats := ats || had.ats;
  fair_ids := fair_ids || had.fair_ids;
  complete := not had.cut;
end
$$;

-- Chooses jobs as choose_keyed does, but in a lane without fair queues, and in the order of positions from `start` on. Reads the first
-- thousand jobs, and skips jobs whose keys have no free permits.
create function queue.choose_of_keys(
  lane bigint, start bigint, most integer, limit_ids bigint[], floors bigint[], taken bigint[],
  out ats tid[], out fair_ids bigint[], out passed bigint[]
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with waiting as materialized (
    select w.at, w.seq, coalesce(j.fair_id, 0) as fair_id
    from (
      select r.ctid as at, r.seq, r.id
      from queue.ready r
      where r.lane = choose_of_keys.lane and r.seq >= choose_of_keys.start
      order by r.seq
      limit 1000
    ) w
    left join lateral (select j.fair_id from queue.job j where j.id = w.id offset 0) j on true
  ), vacant as materialized (
    select r.fair_id, min(r.free) - (select count(*) from unnest(choose_of_keys.taken) t (fair_id) where t.fair_id = r.fair_id) as free
    from queue.free_fair_permits(choose_of_keys.limit_ids, choose_of_keys.floors, array(select w.fair_id from waiting w)) r
    group by r.fair_id
  ), able as materialized (
    select p.at, p.fair_id, p.seq
    from (select w.at, w.fair_id, w.seq, row_number() over (partition by w.fair_id order by w.seq) as nth from waiting w) p
    join vacant r on r.fair_id = p.fair_id
    where p.nth <= coalesce(r.free, p.nth)
  ), chosen as materialized (
    select r.ctid as at, a.fair_id
    from able a
    join queue.ready r on r.ctid = a.at
    order by a.seq
    limit choose_of_keys.most
    for update of r skip locked
  )
  select coalesce(array_agg(c.at), '{}'), coalesce(array_agg(c.fair_id), '{}'), (array(select r.fair_id from vacant r where r.free <= 0 limit 100))
  into ats, fair_ids, passed
  from chosen c;
end
$$;

-- Chooses jobs in several lanes, in the order of the lanes, up to `mosts` jobs from each lane.
create function queue.choose_under_keys(
  lanes bigint[], begins bigint[], is_fair boolean[], mosts integer[], quantum integer, most integer, limit_ids bigint[], floors bigint[],
  out ats tid[], out fair_ids bigint[], out passed bigint[], out reached bigint[], out complete boolean
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  room  integer;
  had   record;
begin
  ats := '{}';
  fair_ids := '{}';
  passed := '{}';
  reached := begins;
  complete := true;
  for nth in 1..cardinality(lanes) loop
    room := least(mosts[nth], choose_under_keys.most - coalesce(cardinality(ats), 0));
    if room <= 0 then
      complete := false;
    elsif choose_under_keys.is_fair[nth] then
      had := queue.choose_keyed(lanes[nth], begins[nth], quantum, room, choose_under_keys.limit_ids, choose_under_keys.floors, fair_ids);
      ats := ats || had.ats;
      fair_ids := fair_ids || had.fair_ids;
      passed := passed || had.passed;
      reached[nth] := had.reached;
      complete := complete and had.complete;
    else
      had := queue.choose_of_keys(lanes[nth], begins[nth], room, choose_under_keys.limit_ids, choose_under_keys.floors, fair_ids);
      ats := ats || had.ats;
      fair_ids := fair_ids || had.fair_ids;
      passed := passed || had.passed;
    end if;
  end loop;
  passed := passed[1:100];
end
$$;

-- Claims of jobs under per-key limits. For claims under other limits, see 15_limits.sql.

-- Returns whether the fair queues in `fair_ids` are known to have no free permits, so that a claim need not lock a limiter. All leases must
-- have been read within the last second. Each fair queue must lack a permit of one of the limits. For that limit, the fair queue must be
-- recorded, so that the end of a job sends a notification, or its delay until the next start (`wait_ms`) must be known. The last condition
-- is waived if the maximum of a hundred fair queues is recorded.
create function queue.are_exhausted(limit_ids bigint[], floors bigint[], fair_ids bigint[], out is_known boolean, out wait_ms float8)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- The recorded fair queues are read first. Otherwise, a job could end between the two reads without a notification, and be missed.
  known  jsonb := (select jsonb_object_agg(g.limit_id, to_jsonb(g.fair_ids)) from queue.limiter g where g.limit_id = any (are_exhausted.limit_ids));
begin
  if exists (select from queue.limiter g where g.limit_id = any (are_exhausted.limit_ids) and g.read_at < clock_timestamp() - interval '1 s') then
    is_known := false;
    return;
  end if;
  select coalesce(bool_and(l.is_known), false), min(l.wait_ms)
  into is_known, wait_ms
  from (
    select bool_or(r.free <= 0 and (r.wait_ms is not null or n.fair_ids @> to_jsonb(r.fair_id) or jsonb_array_length(n.fair_ids) >= 100)) as is_known,
      min(r.wait_ms) as wait_ms
    from queue.free_fair_permits(are_exhausted.limit_ids, are_exhausted.floors, are_exhausted.fair_ids) r
    cross join lateral (select known -> r.limit_id::text as fair_ids) n
    group by r.fair_id
  ) l;
end
$$;

-- Returns the fair queues with waiting jobs and no free permits, each with the delay in ms until the next start (null: unknown). `passed`
-- contains fair queues that are known to have waiting jobs.
create function queue.full_fair_ids(limit_ids bigint[], floors bigint[], lanes bigint[], is_fair boolean[], fair_ids bigint[], passed bigint[])
  returns table (fair_id bigint, wait_ms float8)
  language sql volatile
begin atomic
  select r.fair_id, max(r.wait_ms)
  from queue.free_fair_permits(full_fair_ids.limit_ids, full_fair_ids.floors, full_fair_ids.fair_ids || full_fair_ids.passed) r
  where r.free <= 0 and (r.fair_id = any (full_fair_ids.passed) or exists (
    select
    from unnest(full_fair_ids.lanes, full_fair_ids.is_fair) l (lane, is_fair)
    cross join lateral (
      select from queue.ready q
      where q.lane = queue.paired_lane(l.lane) and q.fair_id >= r.fair_id and q.fair_id <= r.fair_id order by q.fair_id, q.seq limit 1
    ) q
    where l.is_fair
  ))
  group by r.fair_id;
end;

-- Counts one start for each element of `fair_ids` under each limit in `limit_ids` that has a rate. The time of the start is `at`, rounded
-- up to the limit's time resolution.
create function queue.count_starts(limit_ids bigint[], fair_ids bigint[], at bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with begin_at as materialized (
    select s.limit_id, s.fair_id, s.at_ms, s.n, l.total, coalesce(l.at_ms > s.at_ms, false) as is_passed
    from (
      select b.limit_id, case when b.keyed then k.fair_id else 0 end as fair_id,
        (count_starts.at + tick.ms) / tick.ms * tick.ms as at_ms,
        count(*)::integer as n
      from queue.bound_in_force b
      cross join lateral (select greatest(1, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 1000) as ms) tick
      cross join unnest(count_starts.fair_ids) k (fair_id)
      where b.limit_id = any (count_starts.limit_ids) and b.starts is not null
      group by 1, 2, 3
    ) s
    left join lateral (
      select r.at_ms, r.total from queue.rate r where r.limit_id = s.limit_id and r.fair_id = s.fair_id order by r.at_ms desc limit 1
    ) l on true
  ), moved_on as (
    -- Raises the cumulative totals of the starts that other claims have recorded for a later time.
    update queue.rate r set total = r.total + l.n
    from (
      select l.at, s.n
      from begin_at s
      cross join lateral (
        select r.ctid as at from queue.rate r where r.limit_id = s.limit_id and r.fair_id = s.fair_id and r.at_ms > s.at_ms offset 0
      ) l
      where s.is_passed
    ) l
    where r.ctid = l.at
  )
  insert into queue.rate as r (limit_id, fair_id, at_ms, n, total)
  select s.limit_id, s.fair_id, s.at_ms, s.n, s.n + case when not s.is_passed then coalesce(s.total, 0) else coalesce(
    (select p.total from queue.rate p where p.limit_id = s.limit_id and p.fair_id = s.fair_id and p.at_ms <= s.at_ms order by p.at_ms desc limit 1),
    (select p.total - p.n from queue.rate p where p.limit_id = s.limit_id and p.fair_id = s.fair_id and p.at_ms > s.at_ms order by p.at_ms limit 1),
    0) end
  from begin_at s
  on conflict on constraint rate_pkey do update set n = r.n + excluded.n, total = excluded.total;
end
$$;

-- ready -> lease: claims jobs as queue.claim_limited does, from lanes covered by the limits in `limit_ids`. At least one of the limits must
-- be a per-key limit. Takes at most as many jobs of a key as the key has free permits. Returns the job rows, one row without id for each
-- fair lane, and a last row as in claim_limited. The row of a fair lane contains the fair queue after which to continue. In the last row,
-- `closed` has two additional values. `exhausted`: all fair queues were searched, and no remaining job has a free permit. `more`: the
-- search is incomplete.
create function queue.claim_keyed(
  token uuid, worker uuid, limit_ids bigint[], lanes bigint[], begins bigint[], is_fair boolean[], mosts integer[], most integer, freed uuid[],
  slack_ms bigint, permits bigint[]
) returns table (
    lane bigint, turn bigint, fair_id bigint, seq bigint, id bigint, attempts smallint, crashes smallint,
    closed text, wait_ms float8, at_ms bigint, within_ms bigint, permit_floors bigint[]
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  figures  record;      -- values of the limits
  had      record;
  is_known boolean := false;
  found_   integer;
  free_    bigint;      -- free permits under limits that are not per-key or are slowed down
  due_ms   float8;
  began    bigint;
  took     integer := 0;
  waiting  bigint[] := '{}';  -- fair queues with further jobs but no free permits
begin
  if cardinality(claim_keyed.freed) = 0
    and exists (select from queue.limiter g where g.limit_id = any (claim_keyed.limit_ids) and cardinality(g.fair_ids) > 0)
  then
    -- Another claim has recorded fair queues without free permits. If the fair queues found here are known to have none, returns early
    -- without locking the limiters.
    had := queue.choose_under_keys(
      claim_keyed.lanes, claim_keyed.begins, claim_keyed.is_fair, claim_keyed.mosts, 1, claim_keyed.most, claim_keyed.limit_ids, claim_keyed.permits);
    if cardinality(had.ats) = 0 and cardinality(had.passed) > 0 then
      select k.is_known, k.wait_ms into is_known, due_ms from queue.are_exhausted(claim_keyed.limit_ids, claim_keyed.permits, had.passed) k;
    end if;
    if is_known then
      return query select l.lane, null::bigint, l.fair_id, null::bigint, null::bigint, null::smallint, null::smallint, null::text, null::float8,
        null::bigint, null::bigint, null::bigint[]
      from unnest(claim_keyed.lanes, claim_keyed.is_fair, had.reached) l (lane, is_fair, fair_id) where l.is_fair;
      closed := case when had.complete then 'exhausted' else 'more' end;
      wait_ms := due_ms;
      return next;
      return;
    end if;
  end if;
  perform from queue.limiter g where g.limit_id = any (claim_keyed.limit_ids) order by g.limit_id for update;
  get diagnostics found_ = row_count;
  if found_ < cardinality(claim_keyed.limit_ids) then
    closed := 'gone';
    return next;
    return;
  end if;
  if cardinality(claim_keyed.freed) > 0 then
    perform queue.read_keyed(claim_keyed.limit_ids, claim_keyed.permits, claim_keyed.freed);
  end if;
  select bool_or(g.adopted < b.number) as is_new, bool_or(not b.keyed or g.not_before > clock_timestamp()) as in_all,
    bool_or(g.has_waiters and not b.keyed) as has_waiters, bool_or(cardinality(g.fair_ids) > 0) as has_full,
    -- Maximum number of jobs per key and turn: the lowest concurrency, starts or burst of the limits. At most 5, so other keys wait less.
    greatest(1, least(5, min(least(b.concurrency, b.starts, b.burst)) filter (where b.keyed))) as quantum,
    case when min(b.within_ms) is not null then greatest(min(b.within_ms), claim_keyed.slack_ms) end as within,
    array_agg((
      select h.place from queue.permit h
      where h.limit_id = g.limit_id and h.place >= coalesce(claim_keyed.permits[array_position(claim_keyed.limit_ids, g.limit_id)], 0)
      order by h.place
      limit 1
    ) order by array_position(claim_keyed.limit_ids, g.limit_id)) as lowest
  into figures
  from queue.bound_in_force b
  join queue.limiter g on g.limit_id = b.limit_id
  where b.limit_id = any (claim_keyed.limit_ids);
  if figures.is_new and not queue.count_running(claim_keyed.limit_ids) then
    closed := 'unknown';
    return next;
    return;
  end if;
  for attempt in 1..2 loop
    free_ := claim_keyed.most;
    if figures.in_all then
      free_ := least(free_, (select min(r.free) from queue.free_permits(claim_keyed.limit_ids, claim_keyed.permits) r));
    end if;
    had := queue.choose_under_keys(claim_keyed.lanes, claim_keyed.begins, claim_keyed.is_fair, claim_keyed.mosts, figures.quantum,
      free_::integer, claim_keyed.limit_ids, claim_keyed.permits);
    exit when attempt = 2 or cardinality(had.ats) >= claim_keyed.most or (free_ >= claim_keyed.most and cardinality(had.passed) = 0);
    -- At most once a second, a claim that lacks permits reads all leases, to release the permits of jobs whose end was not reported.
    update queue.limiter g set read_at = clock_timestamp()
    where g.limit_id = any (claim_keyed.limit_ids) and g.read_at < clock_timestamp() - interval '1 s';
    exit when not found;
    perform queue.read_keyed(claim_keyed.limit_ids, claim_keyed.permits, null);
  end loop;
  began := queue.clock_ms();
  permit_floors := figures.lowest;
  if cardinality(had.ats) > 0 then
    if array_position(permit_floors, null) is not null then
      permit_floors := queue.permit_floors(permit_floors);
    end if;
    return query
    with picked as materialized (
      select p.at, (had.fair_ids)[p.turn] as fair_id, p.turn from queue.in_turn(had.ats) p
    ), taken as materialized (
      delete from queue.ready
      where ctid = any (had.ats)
        and exists (select from queue.worker w where w.id = claim_keyed.worker and w.expires_at > now())
        and not exists (
          select from queue.limiter g join queue.bound_in_force b on b.limit_id = g.limit_id
          where g.limit_id = any (claim_keyed.limit_ids) and g.adopted < b.number
        )
      returning ctid as at, case when fair_id is null then lane else queue.paired_lane(lane) end as lane, fair_id, seq, id,
        least(attempts + 1, 32767)::smallint as attempts, crashes
    ), of_key as materialized (
      select t.lane, p.turn, t.fair_id as stands, p.fair_id, t.seq, t.id, t.attempts, t.crashes
      from taken t
      join picked p on p.at = t.at
      order by t.id
    ), leased as (
      insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select claim_keyed.token, claim_keyed.worker, case when min(k.lane) = max(k.lane) then min(k.lane) end, array_agg(k.id),
        array_agg(k.attempts), array_agg(k.crashes)
      from of_key k
      having count(*) > 0
    ), noted as (
      insert into queue.permit (limit_id, token, n, ids, fair_ids)
      select b.limit_id, claim_keyed.token, c.n, case when b.keyed then c.ids end, case when b.keyed then c.fair_ids end
      from (select count(*) as n, array_agg(k.id) as ids, array_agg(k.fair_id) as fair_ids from of_key k) c
      cross join queue.bound_in_force b
      where c.n > 0 and b.limit_id = any (claim_keyed.limit_ids)
    )
    select k.lane, k.turn, k.stands, k.seq, k.id, k.attempts, k.crashes, null::text, null::float8, null::bigint, null::bigint, null::bigint[]
    from of_key k;
    get diagnostics took = row_count;
  end if;
  if took > 0 and figures.within is not null then
    perform queue.count_starts(claim_keyed.limit_ids, had.fair_ids, began + figures.within);
  end if;
  return query select l.lane, null::bigint, l.fair_id, null::bigint, null::bigint, null::smallint, null::smallint, null::text, null::float8,
    null::bigint, null::bigint, null::bigint[]
  from unnest(claim_keyed.lanes, claim_keyed.is_fair, had.reached) l (lane, is_fair, fair_id) where l.is_fair;
  if took = 0 and cardinality(had.ats) > 0 then
    -- No job was taken although permits were free: a limit's lanes or mode have changed, or this worker's heartbeat has expired.
    closed := 'unknown';
  elsif free_ < claim_keyed.most and cardinality(had.ats) >= free_ then
    select max(r.wait_ms) into due_ms from queue.free_permits(claim_keyed.limit_ids, claim_keyed.permits) r where r.free <= 0;
    update queue.limiter g set has_waiters = true
    from queue.free_permits(claim_keyed.limit_ids, claim_keyed.permits) r
    where g.limit_id = r.limit_id and not g.has_waiters and r.free <= 0 and r.wait_ms is null;
    closed := case when due_ms is null then 'full' else 'rate' end;
  elsif took < claim_keyed.most then
    waiting := had.passed;
    if had.complete then
      select coalesce(array_agg(w.fair_id), '{}'), min(w.wait_ms) into waiting, due_ms
      from queue.full_fair_ids(claim_keyed.limit_ids, claim_keyed.permits, claim_keyed.lanes, claim_keyed.is_fair, had.fair_ids, had.passed) w;
    end if;
    closed := case when not had.complete then 'more' when cardinality(waiting) > 0 then 'exhausted' end;
  end if;
  if figures.has_waiters then
    perform queue.notify_free_permits(claim_keyed.limit_ids, claim_keyed.permits);
  end if;
  if figures.has_full or cardinality(waiting) > 0 then
    perform queue.notify_free_fair_queues(claim_keyed.limit_ids, claim_keyed.permits, waiting);
  end if;
  if figures.is_new or took = 0 then
    permit_floors := null;
  elsif random() < 0.01 then
    perform queue.move_permits(claim_keyed.limit_ids, permit_floors);
  end if;
  wait_ms := due_ms;
  at_ms := began;
  within_ms := figures.within;
  return next;
end
$$;
