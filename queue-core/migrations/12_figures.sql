-- Figures for whoever asks for them every few seconds: what a monitor shows. What one of them costs does not grow with the jobs that wait, nor
-- with how long somebody holds a snapshot. All of them only read, and plan themselves: once a connection, whatever its settings are.

-- Up to where workers have come in lanes off which jobs have gone in the last ten seconds, by the newest history: below it there are only dead
-- index entries, which cost a probe that begins at the front more the longer anybody holds a snapshot; or jobs that were committed late or
-- given back, and those the same workers find within seconds. A lane that nobody works off has no row here, and is read from its front.
create function queue.passed() returns table (seq bigint, lane bigint)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return query
  select max(p.id), p.lane
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
    where not d.cancelled)  -- guard: passed: not what was cancelled from behind [not d.cancelled => true]
  ) p
  where p.finished_at > now() - interval '10 s'  -- guard: passed: only a moment ago [p.finished_at > now() - interval '10 s' => true]
  group by p.lane;
end
$$;

-- For each queue with ready jobs: since when the first of them has been ready, by the database's clock. Reads one index entry a lane; a place
-- in a lane is an id, and so tells when it was taken.
create function queue.oldest()
  returns table (queue text, since timestamptz, waited_ms double precision)
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off
  set jit = off
begin atomic
  select w.queue, w.since, extract(epoch from pg_catalog.clock_timestamp() - w.since)::float8 * 1000 as waited_ms
  from (
    select l.queue, queue.enqueued_at(pg_catalog.min(r.seq)) as since
    from (
      select l.lane, l.queue, coalesce(p.seq, 0) as floor
      from (select distinct l.lane, l.queue from queue.lane l) l
      left join queue.passed() p on p.lane = l.lane
      offset 0
    ) l
    cross join lateral (select r.seq from queue.ready r where r.lane = l.lane and r.seq >= l.floor order by r.seq limit 1) r
    group by l.queue
  ) w
  order by w.since, w.queue;
end;

-- The figures of one queue, for whoever asks every few seconds: how many jobs are ready, counted up to most, whether there are more, and since
-- when the first has been ready, by the database's clock; null if none is. Reads the history's newest rows, and in each lane of the queue one
-- index entry from the front and up to most from the back, where the entries are not dead.
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
  with chosen as materialized (
    select l.lane, coalesce(p.seq, 0) as floor
    -- guard: a backlog is of one queue [ where l.queue = backlog.queue]; of a lane once [distinct ]
    from (select distinct l.lane from queue.lane l where l.queue = backlog.queue) l
    left join queue.passed() p on p.lane = l.lane
  ), counted as materialized (
    select
    from chosen c
    cross join lateral (
      select from queue.ready r
      where r.lane = c.lane and r.seq >= c.floor
      order by r.seq desc
      limit most + 1
    ) r
    limit most + 1  -- guard: a backlog is counted no further than asked
  )
  select least((select count(*) from counted), most), (select count(*) from counted) > most,
    (
      select queue.enqueued_at(min(r.seq))
      from chosen c
      cross join lateral (select r.seq from queue.ready r where r.lane = c.lane and r.seq >= c.floor order by r.seq limit 1) r
    )
  into backlog.ready, backlog.partial, backlog.since;
  waited_ms := extract(epoch from clock_timestamp() - backlog.since)::float8 * 1000;
end
$$;
