-- Functions that return statistics for monitoring systems. Monitoring systems may call the functions every few seconds, because the cost
-- does not grow with the number of waiting jobs. An old snapshot increases the cost only of functions whose comment mentions it.
-- `partial` means that the result may be incomplete.
--
-- All functions are read-only, and set their planner options regardless of the connection's settings. `counts` is planned for each call,
-- so that only the required partitions are opened. The other functions are planned once per connection.

-- Returns the floor of each lane: the position below which all index entries are dead, or nearly all if the floor is `partial`. Dead
-- entries slow down a probe, and accumulate while a session holds an old snapshot. Returns no rows if the server's statistics report at
-- most `bloat` dead rows, because few dead rows are cheap to read.
--
-- If the table ready has at most `heap` bytes and at most 20,000 jobs are ready, the floors are exact. They are then read from the heap,
-- where a dead row costs a sixth as much as a dead index entry. Otherwise the floors come from the newest history, for lanes with a job
-- that finished in the last ten seconds. The callers read a lane without a returned row from its start.
--
-- A floor from the history is marked `partial`, because jobs may have positions below the floor. A job has a lower position if it was
-- released, or if the transaction that enqueued it committed after jobs with higher positions had finished. Workers also start their claims
-- at a floor, and their scans for late jobs find the jobs below the floor within seconds.
create function queue.lane_floors(bloat bigint default 100000, heap bigint default 83886080)
  returns table (seq bigint, lane bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  if pg_stat_get_dead_tuples('queue.ready'::regclass) <= bloat then
    return;
  end if;
  if pg_relation_size('queue.ready') <= heap then
    return query
    with seen as materialized (
      select r.lane, r.seq
      from queue.ready r
      where r.ctid >= '(0,0)'
      limit 20001
    )
    select coalesce(f.seq, 9223372036854775807), l.lane, false
    from (select distinct l.lane from queue.lane l) l
    left join (select s.lane, min(s.seq) as seq from seen s group by s.lane) f on f.lane = l.lane
    where (select count(*) from seen) <= 20000;
    if found then
      return;
    end if;
  end if;
  return query
  select max(p.id), p.lane, true
  from (
    (select m.lane, m.first_id as id, m.finished_at
    from queue.done_many m
    order by m.first_id desc
    limit 1000)
    union all
    (select (select j.lane from queue.job j where j.id = d.id offset 0), d.id, d.finished_at
    from (
      select d.id, d.finished_at, d.cancelled
      from queue.done d
      order by d.id desc
      limit 200
    ) d
    where not d.cancelled)
  ) p
  where p.finished_at > now() - interval '10 s'
  group by p.lane;
end
$$;

-- Returns how long the first job of each queue has been ready, measured by the database clock. With `most`, returns only the `most`
-- queues whose first jobs have waited longest. `partial` means that another job may have been ready for longer. Reads one index entry per
-- lane, and computes the time from the entry's position: a position is an id, and an id contains its allocation time.
create function queue.oldest(most integer default null)
  returns table (queue text, since timestamptz, waited_ms double precision, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return query
  with found as materialized (
    -- Sorts the lanes, because consecutive probes of neighbouring index entries are faster.
    select l.lane, l.queue, coalesce(p.seq, 0) as floor, p.partial, row_number() over (order by l.lane) as place
    from (select distinct l.lane, l.queue from queue.lane l where l.ctid >= '(0,0)') l
    left join queue.lane_floors() p on p.lane = l.lane
  ), bar as materialized (
    -- Highest position to read: the `most`-th lowest among the first positions of the queues. Only the first thousand lanes are
    -- considered. A queue with a higher first position is not returned, because its first job has waited less.
    select max(h.seq) as seq
    from (
      select min(f.seq) as seq
      from (
        select f.queue, (select r.seq from queue.ready r where r.lane = f.lane and r.seq >= f.floor order by r.seq limit 1) as seq
        from found f
        where f.place <= 1000 and f.partial is null and oldest.most is not null
      ) f
      where f.seq is not null
      group by f.queue
      order by 1
      limit oldest.most
    ) h
    having count(*) = oldest.most
  )
  select w.queue, queue.enqueued_at(w.seq), extract(epoch from clock_timestamp() - queue.enqueued_at(w.seq))::float8 * 1000, w.partial
  from (
    select l.queue, min(l.seq) as seq, coalesce(bool_or(l.partial), false) as partial
    from (
      select f.queue, f.partial,
        (select r.seq
        from queue.ready r
        where r.lane = f.lane and r.seq >= f.floor and r.seq <= coalesce(case when f.partial is null then b.seq end, 9223372036854775807)
        order by r.seq
        limit 1) as seq
      from found f
      left join bar b on true
      offset 0
    ) l
    where l.seq is not null or l.partial
    group by l.queue
    order by 2, 1
    limit oldest.most
  ) w
  order by w.seq, w.queue;
end
$$;

-- Returns the number of ready jobs in a queue, and the time when its first job became ready. `ready` counts up to `most` jobs, or all
-- jobs if `most` is null, and `partial` reports whether there may be more. `since` is measured by the database clock, and null if no job
-- is ready.
--
-- Unless `most` is null, the function reads each lane only from its floor on (queue.lane_floors). It reads one entry there to find the
-- first job. To count the jobs, it reads up to `most` entries from the lane's end, where few entries are dead.
create function queue.backlog(
  queue text, most integer default 10000,
  out ready bigint, out partial boolean, out since timestamptz, out waited_ms double precision
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  if most < 0 then
    raise invalid_parameter_value using message = format('queue.backlog: most must be a number from 0 on, or null for all jobs, not %s', most);
  elsif most > 1000000000 then
    most := 1000000000;
  end if;
  with chosen as materialized (
    select l.lane, coalesce(p.seq, 0) as floor, p.partial
    from (select distinct l.lane from queue.lane l where l.queue = backlog.queue) l
    left join queue.lane_floors() p on p.lane = l.lane and most is not null
  ), counted as materialized (
    select
    from chosen c
    cross join lateral (
      select from queue.ready r
      where r.lane = c.lane and r.seq >= c.floor
      order by r.seq desc
      limit most + 1
    ) r
    limit most + 1
  )
  select least((select count(*) from counted), most),
    coalesce((select count(*) from counted) > most or exists (select from chosen c where c.partial), false),
    (
      select queue.enqueued_at(min(r.seq))
      from chosen c
      cross join lateral (select r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor order by r.seq limit 1) r
    )
  into backlog.ready, backlog.partial, backlog.since;
  waited_ms := extract(epoch from clock_timestamp() - backlog.since)::float8 * 1000;
end
$$;

-- Returns the number of jobs by queue, job type and state, and whether there may be more. Counts up to `most` entries of each state, or
-- all entries if `most` is null, at a cost proportional to the number of jobs. If a state has more than `most` entries, its counts are
-- limited as follows:
--
--   ready, scheduled, blocked, parked   each lane is counted up to its share of `most`, and is exact if it has no more entries
--   running, dead                       only the newest entries are counted, so every count is a lower bound
--   completed, cancelled, expired       only the newest `most` / 4 rows of done and of done_many (hundreds of jobs per row) are counted,
--                                       so every count is a lower bound
--
-- Waiting jobs are first counted in heap order, where a dead row costs a tenth as much as a dead index entry. The lanes are read by index
-- only for states with more than `most` entries.
--
-- With `top`, returns only the `top` pairs of queue and job type with the most unfinished jobs and dead letters. Additional rows without
-- queue and job type then contain the total number of jobs by state. A row without a state contains the number of omitted pairs.
create function queue.counts(most bigint default 20000, top integer default null)
  returns table (queue text, job_type text, state text, jobs bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
declare
  -- `lowest` is the lowest id of the finished jobs to read. `held_ids` are the ids of running jobs whose lease does not contain their
  -- lane, and `held_low` is the lowest of them. Partitions of days before `lowest` and `held_low` are not opened.
  lowest    bigint;
  held_ids  bigint[];
  held_low  bigint;
begin
  if most < 0 then
    raise invalid_parameter_value using message = format('queue.counts: most must be a number from 0 on, or null for all jobs, not %s', most);
  elsif most > 1000000000 then
    most := 1000000000;
  end if;
  held_ids := array(
    select u.id
    from (select h.lane, h.ids from queue.lease h limit most + 1) h
    cross join lateral unnest(h.ids) u (id)
    where h.lane is null
    limit most / 4 + 1
  );
  held_low := (select min(h.id) from unnest(held_ids) h (id));
  lowest := queue.day_before(now());
  lowest := case
    when (select count(*) from (select from queue.done d where d.id >= lowest limit most / 4 + 1) d) > most / 4
      and (select count(*) from (select from queue.done_many m where m.first_id >= lowest limit most / 4 + 1) m) > most / 4 then lowest
    else 0
  end;
  return query
  with chosen as materialized (
    select distinct l.lane, l.queue, queue.type_of(l.job_type) as job_type
    from queue.lane l
    where l.ctid >= '(0,0)'
  ), seen as materialized (
    select 'ready' as state, r.lane, count(*) as jobs
    from (select r.lane from queue.ready r where r.ctid >= '(0,0)' limit most + 1) r
    group by r.lane
    union all
    select 'scheduled', s.lane, count(*)
    from (select s.lane from queue.scheduled s where s.ctid >= '(0,0)' limit most + 1) s
    group by s.lane
    union all
    select 'parked', p.lane, count(*)
    from (select p.lane from queue.parked p where p.ctid >= '(0,0)' limit most + 1) p
    group by p.lane
    union all
    select 'blocked', b.lane, count(*)
    from (select b.lane from queue.blocked b where b.ctid >= '(0,0)' limit most + 1) b
    group by b.lane
  ), many as materialized (
    select s.state from seen s group by s.state having sum(s.jobs) > most
  ), held as materialized (
    select h.lane, h.ids
    from queue.lease h
    limit most + 1
  ), held_singly as materialized (
    select u.id from unnest(held_ids) u (id)
  ), died as materialized (
    select d.lane
    from queue.dead d
    order by d.id desc
    limit most + 1
  ), finished as materialized (
    select d.id, case when d.expired then 'expired' when d.cancelled then 'cancelled' else 'completed' end as state
    from queue.done d
    where d.id >= lowest
    order by d.id desc
    limit most / 4 + 1
  ), finished_plainly as materialized (
    select m.lane, m.ids
    from queue.done_many m
    where m.first_id >= lowest
    order by m.first_id desc
    limit most / 4 + 1
  ), cut as materialized (
    select 'running' as state
    where (select count(*) from held) > most or (select count(*) from held_singly) > most / 4
    union all
    select 'dead' where (select count(*) from died) > most
    union all
    select u.state from unnest('{cancelled,expired}'::text[]) u (state) where (select count(*) from finished) > most / 4
    union all
    select 'completed' where (select count(*) from finished) > most / 4 or (select count(*) from finished_plainly) > most / 4
  ), sampled as materialized (
    -- The lane ranking need not be exact, so it adds floats, which is faster than adding numerics.
    select s.state, s.lane, s.jobs, s.jobs::float8 as live, s.jobs::float8 as seen from seen s
    union all
    select 'running', h.lane, sum(cardinality(h.ids)), sum(cardinality(h.ids))::float8, sum(cardinality(h.ids))::float8
    from held h
    where h.lane is not null
    group by h.lane
    union all
    select o.state, j.lane, count(*), null, count(*)::float8
    from finished o
    cross join lateral (select j.lane from queue.job j where j.id = o.id and j.id >= lowest offset 0) j
    group by o.state, j.lane
    union all
    select 'running', j.lane, count(*), count(*)::float8, count(*)::float8
    from held_singly h
    cross join lateral (select j.lane from queue.job j where j.id = h.id and j.id >= held_low offset 0) j
    group by j.lane
    union all
    select 'completed', o.lane, sum(cardinality(o.ids)), null, sum(cardinality(o.ids))::float8 from finished_plainly o group by o.lane
    union all
    select 'dead', d.lane, count(*), count(*)::float8, count(*)::float8 from died d group by d.lane
  ), paired as materialized (
    select c.queue, c.job_type, sum(s.live) as live, sum(s.seen) as seen, min(c.lane) as lane
    from (
      select s.lane, sum(s.live) as live, sum(s.seen) as seen
      from sampled s
      where top is not null
      group by s.lane
    ) s
    join chosen c on c.lane = s.lane
    group by c.queue, c.job_type
  ), ranked as materialized (
    select p.queue, p.job_type from paired p order by p.live desc nulls last, p.seen desc, p.lane limit top
  ), listed as materialized (
    select c.lane, c.queue, c.job_type
    from chosen c
    where top is null or (c.queue, c.job_type) in (select k.queue, k.job_type from ranked k)
  ), seen_of_listed as materialized (
    select s.state, s.lane, s.jobs from sampled s where s.lane in (select c.lane from listed c)
  ), floors as materialized (
    -- `heap => 0` takes the floors from the history, because exact floors would require a second scan of the heap.
    select p.lane, p.seq from queue.lane_floors(heap => 0) p where exists (select from many m where m.state = 'ready')
  ), probed as materialized (
    select m.state, c.lane, greatest(least(n.jobs, a.share), least(coalesce(s.jobs, 0), most)) as jobs,
      n.jobs > a.share or f.seq is not null as partial
    from many m
    cross join listed c
    cross join (select least(greatest(most * 5 / 2 / nullif(count(*), 0), 1), most) as share from listed) a
    left join floors f on f.lane = c.lane and m.state = 'ready'
    left join seen_of_listed s on s.state = m.state and s.lane = c.lane
    cross join lateral (
      select count(*) as jobs
      from (
        (select from queue.ready r
        where m.state = 'ready' and r.lane = c.lane and r.seq >= coalesce(f.seq, 0)
        order by r.seq desc
        limit a.share + 1)
        union all
        (select from queue.scheduled s where m.state = 'scheduled' and s.lane = c.lane limit a.share + 1)
        union all
        (select from queue.parked p where m.state = 'parked' and p.lane = c.lane limit a.share + 1)
        union all
        (select from queue.blocked b where m.state = 'blocked' and b.lane = c.lane limit a.share + 1)
      ) e
    ) n
  ), counted as (
    -- The counts read in heap order are exact only for states whose entries were all read.
    select s.state, s.lane, s.jobs, false as partial from seen_of_listed s where not exists (select from many m where m.state = s.state)
    union all
    select p.state, p.lane, p.jobs, p.partial from probed p where p.jobs > 0 or p.partial
    union all
    select k.state, c.lane, 0, true from cut k cross join listed c
  )
  select c.queue, c.job_type, n.state, sum(n.jobs)::bigint, bool_or(n.partial)
  from counted n
  join listed c on c.lane = n.lane
  group by c.queue, c.job_type, n.state
  union all
  select null, null, a.state,
    greatest(case when a.state in (select m.state from many m) or a.state = 'dead' then least(a.jobs, most) else a.jobs end,
      (select sum(n.jobs)::bigint from counted n where n.state = a.state)),
    a.state in (select m.state from many m) or a.state in (select k.state from cut k)
  from (select s.state, sum(s.jobs)::bigint as jobs from sampled s group by s.state) a
  where top is not null
  union all
  select null, null, null, (select count(*) from paired) - top, false
  where (select count(*) from paired) > top
  order by 1, 2, 3;
end
$$;
