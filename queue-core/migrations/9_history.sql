-- Queries of jobs and their history, for operators and programs in any language. All functions are read-only.

-- Returns the payload version from a job type's stored name.
create function queue.version_of(stored text) returns smallint
  language sql immutable strict parallel safe
  return coalesce(nullif(pg_catalog.split_part(stored, '@', 2), '')::smallint, 1::smallint);

-- Returns the newest ready jobs in `lanes` (null: all lanes) with ids below `before` and not below `lowest`. The result may contain more
-- than `most` jobs, from which the caller chooses. The result contains no jobs with ids below `horizon`, but such jobs may exist. If
-- `horizon` is null, the result is complete. If at least `enough` of the store's newest jobs are ready, the plain lanes are not searched
-- for older jobs.
--
-- There is no index on the ids of all ready jobs, because its maintenance would slow down every enqueue. A small table is scanned
-- completely. In a large table, the position of nearly every job is its id, so the store's newest jobs are looked up by their ids. If too
-- few of them are ready, the newest job of each lane is read. Further jobs are read only from the lanes with the newest jobs. Each
-- of the two reads of a lane skips at most 2,000 entries whose position differs from their id.
--
-- A partial index on id covers the jobs whose position differs from their id, such as all jobs of fair lanes. Quarantine lanes are read
-- separately, because a quarantined job whose position equals its id is not in that index.
create function queue.newest_ready(lanes bigint[], before bigint, lowest bigint, most integer, enough integer)
  returns table (horizon bigint, id bigint, attempts smallint, crashes smallint)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
declare
  -- Maximum number of lanes from which several jobs are read. From all other lanes, only the newest job is read.
  wide  integer := least(greatest(most, 1), 100);
begin
  if pg_relation_size('queue.ready'::regclass) <= 8388608 then
    return query
    select case when count(*) over () = newest_ready.most then min(r.id) over () end, r.id, r.attempts, r.crashes
    from (
      select r.id, r.attempts, r.crashes
      from queue.ready r
      where r.ctid >= '(0,0)' and r.id < newest_ready.before and r.id >= newest_ready.lowest and (lanes is null or r.lane = any (lanes))
      order by r.id desc
      limit newest_ready.most
    ) r;
    return;
  end if;
  return query
  with newest as materialized (
    select j.id, j.lane
    from queue.job j
    where j.id < newest_ready.before and j.id >= newest_ready.lowest
    order by j.id desc
    limit 2000
  ), recent as materialized (
    select r.id, r.attempts, r.crashes
    from newest j
    join queue.ready r on r.lane = j.lane and r.seq = j.id and r.id = j.id
    where lanes is null or j.lane = any (lanes)
  ), asked as materialized (
    select (select count(*) from newest) = 2000 and (select count(*) from recent) < newest_ready.enough as lanes
  ), tops as materialized (
    select c.lane,
      (select r.seq
      from (select r.seq, r.id from queue.ready r where r.lane = c.lane and r.seq < newest_ready.before order by r.seq desc limit 2000) r
      where r.seq = r.id
      limit 1) as seq
    from (select distinct l.lane from queue.lane l where l.ctid >= '(0,0)' and not l.solo and not l.paired) c
    where (select a.lanes from asked a) and (newest_ready.lanes is null or c.lane = any (newest_ready.lanes))
  ), ranked as materialized (
    select t.lane, t.seq, row_number() over (order by t.seq desc) as place
    from tops t
    where t.seq >= newest_ready.lowest
  ), share as materialized (
    select least(newest_ready.most, 20000 / least(greatest(count(*), 1), wide)) as jobs from ranked
  ), unmoved as materialized (
    select k.lane, e.id, e.attempts, e.crashes
    from ranked k
    cross join share s
    cross join lateral (
      select r.id, r.attempts, r.crashes
      from (
        select r.seq, r.id, r.attempts, r.crashes
        from queue.ready r
        where r.lane = k.lane and r.seq <= k.seq and r.seq >= newest_ready.lowest
        order by r.seq desc
        limit s.jobs + 2000
      ) r
      where r.seq = r.id
      limit s.jobs
    ) e
    where k.place <= wide
  ), skipped as materialized (
    -- Lowest position read in each lane in which too many entries had to be skipped.
    select (select r.seq from queue.ready r where r.lane = t.lane and r.seq < newest_ready.before order by r.seq desc offset 1999 limit 1) as seq
    from tops t
    where t.seq is null
    union all
    select (select r.seq from queue.ready r where r.lane = k.lane and r.seq <= k.seq order by r.seq desc offset s.jobs + 1999 limit 1)
    from ranked k
    cross join share s
    where k.place <= wide and (select count(*) from unmoved u where u.lane = k.lane) < s.jobs
  ), suspects as materialized (
    select r.id, r.lane, r.attempts, r.crashes
    from (select distinct l.lane from queue.lane l where l.ctid >= '(0,0)' and l.solo) c
    cross join lateral (
      select r.id, r.lane, r.attempts, r.crashes
      from queue.ready r
      where r.lane = c.lane and r.seq < newest_ready.before and r.seq >= newest_ready.lowest and r.seq = r.id
      order by r.seq desc
      limit 200
    ) r
    where newest_ready.lanes is null or c.lane = any (newest_ready.lanes)
  ), moved as materialized (
    select r.id, r.lane, r.attempts, r.crashes
    from queue.ready r
    where r.seq <> r.id and r.id < newest_ready.before and r.id >= newest_ready.lowest
    order by r.id desc
    limit 10000
  ), seen as materialized (
    select greatest(
      (select min(j.id) from newest j having count(*) = 2000 and not (select a.lanes from asked a)),
      (select k.seq + 1 from ranked k where k.place = wide + 1),
      (select max(c.id) from (select min(u.id) as id from unmoved u group by u.lane having count(*) >= (select s.jobs from share s)) c),
      (select max(p.seq) from skipped p),
      (select max(c.id) from (select min(u.id) as id from suspects u group by u.lane having count(*) = 200) c),
      (select min(m.id) from moved m having count(*) = 10000)
    ) as horizon
  )
  select s.horizon, e.id, e.attempts, e.crashes
  from seen s
  left join (
    select r.id, r.attempts, r.crashes from recent r where not (select a.lanes from asked a)
    union all
    select u.id, u.attempts, u.crashes from unmoved u
    union all
    select u.id, u.attempts, u.crashes from suspects u
    union all
    select m.id, m.attempts, m.crashes from moved m where newest_ready.lanes is null or m.lane = any (newest_ready.lanes)
  ) e on e.id >= coalesce(s.horizon, 0);
end
$$;

-- One job of a page, with columns from the table of its state. `horizon` is the same for all jobs of a page.
create type queue.listed as (
  horizon bigint, id bigint, state text, attempts smallint, crashes smallint, run_at timestamptz, finished_at timestamptz, ran_ms integer,
  worker uuid, cancelling boolean
);

-- Returns the page of queue.list that consists of jobs with ids from `lowest` on. No job below `lowest` is read, so `horizon` is at least
-- `lowest`. Called only by queue.list_page, which plans the query for each call, so partitions of days below `lowest` are not opened.
create function queue.pick(
  state text, queue text, job_types text[], before bigint, most integer, error text, since interval, older_than interval, meta jsonb,
  looked integer, lowest bigint
)
  returns setof queue.listed
  language sql stable
begin atomic
  with span as materialized (
    select t.since, t.until,
      greatest(case when pick.since is null then 0 else queue.id_at(t.since) end, pick.lowest) as low,
      case when pick.older_than is null then 9223372036854775807 else queue.id_at(t.until) end as high
    from (
      select pg_catalog.now() - pick.since as since, pg_catalog.now() - pick.older_than as until
    ) t
  ), chosen as materialized (
    select l.lane
    from queue.lane l
    where (pick.queue is null or l.queue = pick.queue) and (pick.job_types is null or queue.type_of(l.job_type) = any (pick.job_types))
  ), waiting as materialized (
    select n.horizon, n.id, n.attempts, n.crashes
    from queue.newest_ready(
      case when pick.queue is not null or pick.job_types is not null
        then (select coalesce(pg_catalog.array_agg(distinct c.lane), '{}') from chosen c)
      end,
      least(pick.before, (select w.high from span w)), (select w.low from span w),
      case when pick.meta is null then pick.most else greatest(pick.looked / 2, 1) end,
      -- A query without filters shows the store's newest jobs anyway, so the lanes need not be searched.
      case when pick.state is null and pick.queue is null and pick.job_types is null and pick.meta is null then 0 else pick.most end
    ) n
    where coalesce(pick.state, 'ready') = 'ready' and pick.error is null
  ), due as materialized (
    select s.id, s.lane, s.attempts, s.crashes, s.run_at
    from queue.scheduled s
    where coalesce(pick.state, 'scheduled') = 'scheduled' and pick.error is null
      and s.id < least(pick.before, (select w.high from span w)) and s.id >= (select w.low from span w)
    order by s.id desc
    limit case
      when pick.meta is not null then greatest(pick.looked / 2, 1)
      when pick.queue is not null or pick.job_types is not null then pick.looked::bigint * 5
      else pick.most
    end
  ), halted as materialized (
    select p.id, p.lane, p.attempts, p.crashes, p.run_at
    from queue.parked p
    where coalesce(pick.state, 'parked') = 'parked' and pick.error is null
      and p.id < least(pick.before, (select w.high from span w)) and p.id >= (select w.low from span w)
    order by p.id desc
    limit case
      when pick.meta is not null then greatest(pick.looked / 2, 1)
      when pick.queue is not null or pick.job_types is not null then pick.looked::bigint * 5
      else pick.most
    end
  ), died as materialized (
    select d.id, d.lane, d.attempts, d.crashes, d.died_at, case when pick.error is not null then d.error end as error
    from queue.dead d
    where coalesce(pick.state, 'dead') = 'dead' and d.id < pick.before and d.id >= pick.lowest
    order by d.id desc
    limit case
      when pick.meta is not null then greatest(pick.looked / 2, 1)
      when pick.queue is not null or pick.job_types is not null or pick.error is not null or pick.since is not null or pick.older_than is not null
        then pick.looked::bigint * 5
      else pick.most
    end
  ), held as materialized (
    select u.id, u.attempts, u.crashes, h.worker, h.lane, coalesce(u.id = any (h.cancelling), false) as cancelling
    from queue.lease h
    cross join lateral rows from (pg_catalog.unnest(h.ids), pg_catalog.unnest(h.attempts), pg_catalog.unnest(h.crashes)) u (id, attempts, crashes)
    where coalesce(pick.state, 'running') = 'running' and pick.error is null
      and u.id >= (select w.low from span w) and u.id < (select w.high from span w) and u.id < pick.before
      -- The lane of a lease is null if its jobs are from several lanes. The lane of each job is then looked up below.
      and (pick.queue is null and pick.job_types is null or h.lane is null or h.lane in (select c.lane from chosen c))
    order by u.id desc
    limit case when pick.queue is null and pick.job_types is null and pick.meta is null then pick.most else greatest(pick.looked / 2, 1) end
  ), plain as materialized (
    select m.first_id, m.lane
    from queue.done_many m
    -- If completed jobs are not requested, the condition compares with an id that no row has. A constant false would open the partitions
    -- of all days.
    where m.first_id < pick.before
      and m.first_id >= case when coalesce(pick.state, 'completed') = 'completed' and pick.error is null then pick.lowest else 9223372036854775807 end
    order by m.first_id desc
    limit pick.looked
  ), looked as materialized (
    select greatest(
      nullif(pick.lowest, 0),
      (select n.horizon from waiting n limit 1),
      (select min(s.id) from due s having count(*) >= case
        when pick.meta is not null then greatest(pick.looked / 2, 1)
        when pick.queue is not null or pick.job_types is not null then pick.looked::bigint * 5
      end),
      (select min(p.id) from halted p having count(*) >= case
        when pick.meta is not null then greatest(pick.looked / 2, 1)
        when pick.queue is not null or pick.job_types is not null then pick.looked::bigint * 5
      end),
      (select min(d.id) from died d having count(*) >= case
        when pick.meta is not null then greatest(pick.looked / 2, 1)
        when pick.queue is not null or pick.job_types is not null or pick.error is not null or pick.since is not null or pick.older_than is not null
          then pick.looked::bigint * 5
      end),
      (select min(h.id) from held h
      having count(*) >= greatest(pick.looked / 2, 1) and (pick.queue is not null or pick.job_types is not null or pick.meta is not null)),
      (select d.id
      from queue.done d
      where coalesce(pick.state, 'completed') in ('completed', 'cancelled', 'expired') and pick.error is null
        and (pick.state is not null or pick.queue is not null or pick.job_types is not null or pick.meta is not null or pick.since is not null
          or pick.older_than is not null)
        and d.id < pick.before and d.id >= pick.lowest
      order by d.id desc
      offset pick.looked - 1
      limit 1),
      (select (p.first_id >> 33) << 33 from plain p order by p.first_id desc offset pick.looked - 1 limit 1),
      (select (p.first_id >> 33) << 33
      from plain p
      where pick.meta is null and (pick.queue is null and pick.job_types is null or p.lane in (select c.lane from chosen c))
      order by p.first_id desc
      offset pick.most - 1
      limit 1),
      -- Metadata is stored in queue.job, so a filter by metadata looks up every job of a done_many row. A row contains a few hundred
      -- jobs, so the jobs of only `looked` / 200 rows are looked up.
      (select (p.first_id >> 33) << 33
      from plain p
      where pick.meta is not null
      order by p.first_id desc
      offset greatest(pick.looked / 200, 1) - 1
      limit 1)
    ) as horizon
  ), page as materialized (
    select e.*
    from (
      (select r.id, 'ready' as state, r.attempts, r.crashes, null::timestamptz as run_at, null::timestamptz as finished_at, null::int as ran_ms,
        null::uuid as worker, false as cancelling
      from waiting r
      where r.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.meta is null or (select j.meta from queue.job j where j.id = r.id and j.id >= pick.lowest) @> pick.meta)
      order by r.id desc
      limit pick.most)
      union all
      (select p.id, 'parked', p.attempts, p.crashes, p.run_at, null, null, null, false
      from halted p
      where p.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null or p.lane in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = p.id and j.id >= pick.lowest) @> pick.meta)
      order by p.id desc
      limit pick.most)
      union all
      (select s.id, 'scheduled', s.attempts, s.crashes, s.run_at, null, null, null, false
      from due s
      where s.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null or s.lane in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = s.id and j.id >= pick.lowest) @> pick.meta)
      order by s.id desc
      limit pick.most)
      union all
      (select b.id, 'blocked', 0::smallint, 0::smallint, b.run_at, null, null, null, false
      from queue.blocked b
      where coalesce(pick.state, 'blocked') = 'blocked' and pick.error is null
        and b.id >= (select w.low from span w) and b.id < (select w.high from span w)
        and b.id < pick.before and b.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null or b.lane in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = b.id and j.id >= pick.lowest) @> pick.meta)
      order by b.id desc
      limit pick.most)
      union all
      (select h.id, 'running', h.attempts, h.crashes, null, null, null, h.worker, h.cancelling
      from held h
      where h.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null
          or coalesce(h.lane, (select j.lane from queue.job j where j.id = h.id and j.id >= pick.lowest)) in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = h.id and j.id >= pick.lowest) @> pick.meta)
      order by h.id desc
      limit pick.most)
      union all
      (select d.id, case when d.expired then 'expired' when d.cancelled then 'cancelled' else 'completed' end, d.attempts, 0::smallint, null,
        d.finished_at, d.ran_ms, null, false
      from queue.done d
      where coalesce(pick.state, 'completed') in ('completed', 'cancelled', 'expired') and pick.error is null
        and (pick.state is null or pick.state = case when d.expired then 'expired' when d.cancelled then 'cancelled' else 'completed' end)
        and (pick.since is null or d.finished_at > (select w.since from span w))
        and (pick.older_than is null or d.finished_at <= (select w.until from span w))
        and d.id < pick.before and d.id >= pick.lowest and d.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null
          or (select j.lane from queue.job j where j.id = d.id and j.id >= pick.lowest) in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = d.id and j.id >= pick.lowest) @> pick.meta)
      order by d.id desc
      limit pick.most)
      union all
      (select u.id, 'completed', 1::smallint, 0::smallint, null, m.finished_at, null, null, false
      from queue.done_many m
      cross join lateral pg_catalog.unnest(m.ids) u (id)
      where m.first_id < pick.before
        and m.first_id >=
          case when coalesce(pick.state, 'completed') = 'completed' and pick.error is null then pick.lowest else 9223372036854775807 end
        and (pick.since is null or m.finished_at > (select w.since from span w))
        and (pick.older_than is null or m.finished_at <= (select w.until from span w))
        and m.first_id >= (select (coalesce(l.horizon, 0) >> 33) << 33 from looked l)
        and u.id < pick.before and u.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null or m.lane in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = u.id and j.id >= pick.lowest) @> pick.meta)
      order by u.id desc
      limit pick.most)
      union all
      (select d.id, 'dead', d.attempts, d.crashes, null, d.died_at, null, null, false
      from died d
      where (pick.error is null or pg_catalog.strpos(d.error, pick.error) > 0)
        and (pick.since is null or d.died_at > (select w.since from span w))
        and (pick.older_than is null or d.died_at <= (select w.until from span w))
        and d.id >= (select coalesce(l.horizon, 0) from looked l)
        and (pick.queue is null and pick.job_types is null or d.lane in (select c.lane from chosen c))
        and (pick.meta is null or (select j.meta from queue.job j where j.id = d.id and j.id >= pick.lowest) @> pick.meta)
      order by d.id desc
      limit pick.most)
    ) e
    order by e.id desc
    limit pick.most
  )
  select k.horizon, p.id, p.state, p.attempts, p.crashes, p.run_at, p.finished_at, p.ran_ms, p.worker, p.cancelling
  from looked k
  left join page p on true
  order by p.id desc;
end;

-- Returns one job from any table, or no row if the job does not exist. With `whole`, also returns the payload and the output.
--
-- The plan is generic, because planning costs ten times as much as execution. A plan made while a day partition was empty might use
-- sequential scans, so the settings disable them.
create function queue.find(job bigint, whole boolean default true)
  returns table (
    id bigint, queue text, job_type text, priority smallint, state text, attempts smallint, max_attempts smallint, crashes smallint,
    run_at timestamptz, finished_at timestamptz, ran_ms integer, worker uuid, cancelling boolean, error text, output jsonb, payload jsonb, meta jsonb,
    system jsonb, version smallint
  )
  language plpgsql stable rows 1
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return query
  select j.id, l.queue, queue.type_of(l.job_type), l.priority, e.state, coalesce(e.attempts, a.attempts), j.max_attempts,
    coalesce(e.crashes, a.crashes), e.run_at, e.finished_at, e.ran_ms, a.worker, coalesce(a.cancelling, false), e.error,
    case when whole then e.output end, case when whole then j.payload end, j.meta, j.system,
    queue.version_of(l.job_type)
  from queue.job j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
  cross join lateral queue.entry_of(job) e
  left join lateral (select a.* from queue.attempt_of(job) a where e.state = 'running' offset 0) a on true
  where j.id = job;
end
$$;
