-- Depths: how many jobs wait in a queue, by bounded looks.

-- How many jobs wait in each of these queues, ready, scheduled and blocked, and whether there may be more: counted up to most, or to ten times
-- that in all of them (null for all).
create function queue.depths(queues text[], most bigint default 10000)
  returns table (queue text, waiting bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  share  bigint;
begin
  if most < 0 then
    raise invalid_parameter_value using message = format('queue.depth: jobs are counted up to a number, or all (null), not up to %s', most);
  elsif most > 1000000000 then
    most := 1000000000;
  end if;
  share := most;
  if most is not null and cardinality(queues) > 10 then
    share := greatest(10 * most / cardinality(queues), 1);
  end if;
  return query
  with chosen as materialized (
    select distinct q.queue, l.lane, coalesce(p.seq, 0) as floor, p.partial
    from unnest(depths.queues) q (queue)
    join queue.lane l on l.queue = q.queue
    left join queue.passed() p on p.lane = l.lane and most is not null
  )
  select q.queue, least(n.jobs, share),
    coalesce(n.jobs > share or exists (select from chosen c where c.queue = q.queue and c.partial), false)
  from (select distinct u.queue from unnest(depths.queues) u (queue)) q
  cross join lateral (
    select count(*) as jobs
    from (
      select
      from chosen c
      cross join lateral (
        (select from queue.ready r where r.lane = c.lane and r.seq >= c.floor order by r.seq desc limit share + 1)
        union all
        select from queue.scheduled s where s.lane = c.lane
        union all
        select from queue.blocked b where b.lane = c.lane
      ) e
      where c.queue = q.queue
      limit share + 1
    ) w
  ) n
  order by q.queue;
end
$$;

-- How many jobs wait in a queue, ready, scheduled and blocked, counted up to most (null for all), and whether there may be more.
create function queue.depth(queue text, most bigint default 10000, out waiting bigint, out partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  select d.waiting, d.partial into depth.waiting, depth.partial from queue.depths(array[depth.queue], most) d;
end
$$;

-- The queues that have a capacity, and how many jobs wait in each; see queue.depths.
create function queue.capacities(most bigint default 10000)
  returns table (queue text, capacity bigint, waiting bigint, partial boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select c.queue, c.capacity, d.waiting, d.partial
  from queue.depths((select coalesce(array_agg(c.queue), '{}') from queue.capacity c), most) d
  join queue.capacity c on c.queue = d.queue
  order by c.queue;
end
$$;
