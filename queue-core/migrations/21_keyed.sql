-- Limits by key: a limit whose figures are those of each line (20_lines.sql). Its jobs stand in lines, and each line has its own permits and starts.
--
-- The claim of jobs that such a limit covers is another one (claim_keyed): lines that have no room are passed over while lines are looked for, by a
-- probe each, so what waits in one of them costs the next line nothing. There is one gate for all lines of a limit: claims under it come one after
-- the other, and what each takes is in permit, with the jobs and their lines, when the next one looks.

-- What operators said of one key: it goes before the limit's own concurrency, whoever says that.
create table queue.key_bound (
  name         text         not null,
  line         bigint       not null,
  key          text         not null,
  concurrency  integer      not null,
  since        timestamptz  not null default now(),
  set_by       text         not null default session_user,
  constraint key_bound_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint key_bound_pkey primary key (name, line),
  constraint key_bound_line_is_its_key check (line = queue.line_id(key)),
  constraint key_bound_name_is_a_name check (name ~ '^(type:|queue:)?[A-Za-z0-9_.:-]{1,64}$'),
  constraint key_bound_concurrency_in_range check (concurrency between 0 and 1000000)
);

-- Lets so many jobs of this key run at once under a limit by key, from the next claims on, whatever the limit says of keys; null is what it says.
create function queue.set_limit_key(name text, key text, concurrency integer default null) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
begin
  lock table queue.paused in share row exclusive mode;
  if set_limit_key.concurrency is null then
    delete from queue.key_bound k
    where k.name = set_limit_key.name and k.line = queue.line_id(set_limit_key.key);
  else
    insert into queue.key_bound as k (name, line, key, concurrency)
    values (set_limit_key.name, queue.line_id(set_limit_key.key), set_limit_key.key, set_limit_key.concurrency)
    on conflict on constraint key_bound_pkey do update
    set concurrency = excluded.concurrency, since = excluded.since, set_by = excluded.set_by;
  end if;
  update queue.bound b set revision = nextval('queue.pause_seq')
  where b.name = set_limit_key.name;
  perform queue.notify('wake', '!control');
end
$$;

-- How many more jobs of these lines may begin under each of these limits by key (null: any number); and, if a time must come first, in how many ms.
-- Permits of each limit are read from a floor on, or from the first one.
create function queue.line_room(gates bigint[], floors bigint[], lines bigint[]) returns table (
    gate bigint, line bigint, free bigint, wait_ms float8
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
    select distinct a.line from unnest(line_room.lines) a (line)
  ), b as materialized (
    select b.gate, b.name, b.concurrency, b.starts, b.period_ms, b.burst, f.floor
    from unnest(line_room.gates, line_room.floors) f (gate, floor)
    join queue.bound_in_force b on b.gate = f.gate and b.keyed
  ), held as materialized (
    select b.gate, u.line, count(*) as n
    from b
    join queue.permit h on h.gate = b.gate
      and h.place >= coalesce(b.floor, 0)
    cross join lateral unnest(h.lines) u (line)
    where case when u.line in (select a.line from asked a) then true end
    group by b.gate, u.line
  )
  select b.gate, a.line, least(coalesce(k.concurrency, b.concurrency) - coalesce(h.n, 0), w.free), w.wait_ms
  from asked a
  cross join b
  left join held h on h.gate = b.gate and h.line = a.line
  left join queue.key_bound k on k.name = b.name and k.line = a.line
  left join lateral (
    select s.free, s.wait_ms
    from queue.line_starts(b.gate, a.line, b.starts, b.period_ms, b.burst, at) s
    where b.starts is not null offset 0
  ) w on true;
end
$$;

-- How many of a line's starts are counted after a time, and what its total is now. However many there are, it reads the first and the last of them.
create function queue.starts_since(gate bigint, line bigint, since bigint) returns table (n bigint, total bigint)
  language sql stable
begin atomic
  select coalesce(w.total - w.before, 0), w.total
  from (values (1)) one
  left join lateral (
    select f.before, l.total
    from (
      select r.total - r.n as before
      from queue.rate r
      where r.gate = starts_since.gate and r.line = starts_since.line and r.at_ms > starts_since.since
      order by r.at_ms
      limit 1
    ) f
    cross join lateral (
      select r.total
      from queue.rate r
      where r.gate = starts_since.gate and r.line = starts_since.line and r.at_ms > starts_since.since
      order by r.at_ms desc
      limit 1
    ) l
  ) w on true;
end;

-- How many more jobs of a line may begin now under a rate, and if none in how many ms.
create function queue.line_starts(gate bigint, line bigint, starts integer, period_ms bigint, burst integer, at bigint)
  returns table (free bigint, wait_ms float8)
  language sql stable
begin atomic
  select min(m.starts - u.n), max(o.wait_ms)
  from (values (line_starts.starts, line_starts.period_ms), (line_starts.burst, line_starts.period_ms * line_starts.burst / line_starts.starts))
    m (starts, period_ms)
  cross join lateral queue.starts_since(line_starts.gate, line_starts.line, line_starts.at - m.period_ms) u
  left join lateral (
    select (r.at_ms + m.period_ms - line_starts.at)::float8 as wait_ms
    from queue.rate r
    where r.gate = line_starts.gate and r.line = line_starts.line and r.at_ms > line_starts.at - m.period_ms
      and r.total > u.total - m.starts
    order by r.at_ms
    limit 1
  ) o on u.n >= m.starts
  where m.starts is not null;
end;

-- Takes note of the lines that somebody found without room, so that whoever ends a job of one tells of it; and tells of those for which there is room
-- now. A hundred lines at most are noted of a limit: others are found within a second.
create function queue.tell_of_keys(gates bigint[], floors bigint[], wanted bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  record;
begin
  for one in
    with now_room as materialized (
      select r.gate, r.line, coalesce(r.free, 1) > 0 as is_free, r.wait_ms
      from queue.line_room(tell_of_keys.gates, tell_of_keys.floors,
        tell_of_keys.wanted || array(select l from queue.gate g cross join lateral unnest(g.lines) l where g.gate = any (tell_of_keys.gates))) r
    ), news as materialized (
      select g.gate,
        array(
          select r.line
          from now_room r
          where r.gate = g.gate and not r.is_free
            and ((r.wait_ms is null and r.line in (select unnest(tell_of_keys.wanted))) or r.line in (select unnest(g.lines)))
          order by not r.line = any (g.lines)
          limit 100
        ) as lines,
        exists (select from unnest(g.lines) o (line) join now_room r on r.gate = g.gate and r.line = o.line and r.is_free) as is_told
      from queue.gate g
      where g.gate = any (tell_of_keys.gates)
    )
    update queue.gate g set lines = n.lines
    from news n
    where g.gate = n.gate and (n.is_told or not g.lines @> n.lines)
    returning g.gate, n.is_told
  loop
    if one.is_told then
      perform queue.notify('wake', '!room ' || one.gate);
    end if;
  end loop;
end
$$;

-- The keys of a limit by key: those that have a bound of their own, hold permits, or wait; those with the most permits first, and then those with the
-- most jobs waiting, up to `keys`. The text of a key is known if something was said of it; else there is its line only. Ready jobs are counted as far
-- as the last `most` of all. A door, for it asks leases by their tokens.
create function queue.limit_keys(name text, keys integer default 20, most integer default 10000)
  returns table (line bigint, key text, concurrency integer, used bigint, waiting bigint, partial boolean, next_ms float8)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  gate_  bigint := queue.hash(limit_keys.name);
begin
  return query
  with used as materialized (
    select u.line, count(*) as jobs
    from queue.permit h
    cross join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l
    cross join lateral (select u.line from unnest(h.ids, h.lines) u (id, line) join unnest(l.ids) s (id) on s.id = u.id) u
    where h.gate = gate_
    group by u.line
  ), seen as materialized (
    select w.line, count(*) as jobs
    from (
      select r.line
      from (
        select distinct queue.twin_of(l.lane) as lane from queue.lane l where not l.lined and queue.covers(limit_keys.name, l.queue, l.job_type)
      ) l
      cross join lateral (select r.line from queue.ready r where r.lane = l.lane order by r.seq desc limit most + 1) r
      limit most + 1
    ) w
    group by w.line
  ), said as materialized (
    select k.line, k.key, k.concurrency from queue.key_bound k where k.name = limit_keys.name
  )
  select a.line, coalesce(k.key, (select w.fair from queue.weight w where w.line = a.line limit 1)), k.concurrency, coalesce(u.jobs, 0),
    coalesce(w.jobs, 0), coalesce((select sum(s.jobs) from seen s) > most, false),
    (select max(r.wait_ms) from queue.line_room(array[gate_], null, array[a.line]) r where r.free <= 0)
  from (select u.line from used u union select w.line from seen w union select k.line from said k) a
  left join used u on u.line = a.line
  left join seen w on w.line = a.line
  left join said k on k.line = a.line
  order by coalesce(u.jobs, 0) desc, coalesce(w.jobs, 0) desc, a.line
  limit keys;
end
$$;

-- The limits that have no room for a ready job now: how many permits are held of each (or of its key), and of how many; in how many ms a time comes
-- before which nothing begins; and how many workers do not know the limit yet. The text of its key is known if something was said of it. It asks each
-- limit once. A door, for permits are not for whoever looks.
create function queue.waits_for(id bigint)
  returns table (name text, keyed boolean, line bigint, key text, used bigint, concurrency integer, wait_ms float8, awaits bigint)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return query
  select b.name, b.keyed, j.line, coalesce(k.key, (select w.fair from queue.weight w where w.line = j.line and b.keyed limit 1)), h.n,
    coalesce(k.concurrency, b.concurrency), greatest(r.wait_ms, l.wait_ms), a.n
  from (select j.lane, coalesce(j.line, 0) as line from queue.job j where j.id = waits_for.id) j
  cross join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d
  join queue.bound_in_force b on queue.covers(b.name, d.queue, d.job_type)
  join queue.gate g on g.gate = b.gate
  cross join lateral queue.room(array[b.gate], null) r
  left join lateral queue.line_room(array[b.gate], null, array[j.line]) l on b.keyed
  left join queue.key_bound k on b.keyed and k.name = b.name and k.line = j.line
  cross join lateral (
    select coalesce(sum(case when b.keyed then (select count(*) from unnest(h.lines) u (line) where u.line = j.line) else h.n end), 0)::bigint as n
    from queue.permit h
    where h.gate = b.gate
  ) h
  cross join lateral (select count(*) as n from queue.limit_awaits(b.number) where g.adopted < b.number) a
  where r.free <= 0 or l.free <= 0 or a.n > 0
  order by b.name;
end
$$;

-- Limits, and keys of limits by key, that have no room and whose first ready job has waited for so long; up to `limits`, those that wait longest. It
-- goes from the jobs that wait to the limits that cover them, by name: each lane is looked at once, at its first job. Of a limit by key: at those of
-- the first `jobs` jobs of each lane, and at the `jobs` keys of which least may run of those that something was said of, in each lane; fifty times as
-- many of all, each. Ready jobs are counted as far as the last `most`. A door, for it asks leases by their tokens.
create function queue.full_limits(waited_ms float8, limits integer default 20, jobs integer default 1000, most integer default 10000)
  returns table (
    name text, line bigint, key text, used bigint, concurrency integer, waiting bigint, partial boolean, first_ms float8
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  latest  bigint := queue.id_at(clock_timestamp() - least(greatest(full_limits.waited_ms, 0), 3e12) * interval '1 millisecond');
begin
  if not exists (select from queue.bound) then
    return;
  end if;
  return query
  with covered as materialized (
    select b.name, b.gate, b.keyed, b.concurrency, l.lane, coalesce(p.seq, 0) as floor
    from (select distinct l.lane, l.queue, queue.type_of(l.job_type) as job_type, l.lined from queue.lane l) l
    cross join lateral (
      select 'queue:' || l.queue as name
      union
      select 'type:' || l.job_type
      union
      select t.name from queue.bound_type t where t.job_type = l.job_type
    ) n
    join queue.bound_in_force b on b.name = n.name
    left join queue.passed() p on p.lane = l.lane
    where (l.lined or not b.keyed) and (b.concurrency is not null or exists (select from queue.key_bound k where k.name = b.name))
  ), seen as materialized (
    select c.name, c.gate, null::bigint as line, min(r.seq) as seq
    from covered c
    cross join lateral (
      select r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor and r.seq <= latest order by r.seq limit 1
    ) r
    where not c.keyed
    group by c.name, c.gate
    union all
    select k.name, k.gate, k.line, min(k.seq)
    from (
      (select c.name, c.gate, r.line, r.seq
      from covered c
      cross join lateral (
        select r.line, r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor and r.seq <= latest order by r.seq limit full_limits.jobs
      ) r
      where c.keyed and r.line is not null
      limit 50 * full_limits.jobs)
      union all
      select k.name, k.gate, k.line, r.seq
      from (
        select c.name, c.gate, c.lane, c.floor, k.line
        from (select k.name, k.line from queue.key_bound k order by k.concurrency, k.name, k.line limit full_limits.jobs) k
        join covered c on c.name = k.name
        where c.keyed
        limit 50 * full_limits.jobs
      ) k
      cross join lateral (
        select r.seq
        from queue.ready r
        where r.lane = k.lane and r.line = k.line and r.seq >= k.floor and r.seq <= latest
        order by r.seq
        limit 1
      ) r
    ) k
    group by k.name, k.gate, k.line
  ), held as materialized (
    select s.gate, null::bigint as line, sum(least(h.n, cardinality(l.ids)))::bigint as jobs
    from (select distinct s.gate from seen s where s.line is null) s
    join queue.permit h on h.gate = s.gate
    join queue.lease l on l.token = h.token
    group by s.gate
    union all
    select s.gate, u.line, count(*)
    from (select distinct s.gate from seen s where s.line is not null) s
    join queue.permit h on h.gate = s.gate
    cross join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l
    cross join lateral (select u.line from unnest(h.ids, h.lines) u (id, line) join unnest(l.ids) i (id) on i.id = u.id) u
    group by s.gate, u.line
  ), full_ as materialized (
    select s.name, s.line, coalesce(k.key, (select w.fair from queue.weight w where w.line = s.line limit 1)) as key, coalesce(h.jobs, 0) as used,
      coalesce(k.concurrency, b.concurrency) as concurrency, s.seq
    from seen s
    join queue.bound_in_force b on b.name = s.name
    left join queue.key_bound k on k.name = s.name and k.line = s.line
    left join held h on h.gate = s.gate and h.line is not distinct from s.line
    where coalesce(h.jobs, 0) >= coalesce(k.concurrency, b.concurrency)
    order by s.seq, s.name, s.line
    limit full_limits.limits
  )
  select f.name, f.line, f.key, f.used, f.concurrency, least(w.jobs, most), w.jobs > most,
    extract(epoch from clock_timestamp() - queue.enqueued_at(f.seq))::float8 * 1000
  from full_ f
  cross join lateral (
    select count(*) as jobs
    from (
      -- From behind: in front there are dead entries.
      (select
      from covered c
      cross join lateral (select from queue.ready r where r.lane = c.lane order by r.seq desc limit most + 1) r
      where f.line is null and c.name = f.name
      limit most + 1)
      union all
      (select
      from covered c
      cross join lateral (select from queue.ready r where r.lane = c.lane and r.line = f.line order by r.seq desc limit most + 1) r
      where f.line is not null and c.name = f.name
      limit most + 1)
    ) w
  ) w
  order by f.seq, f.name, f.line;
end
$$;
