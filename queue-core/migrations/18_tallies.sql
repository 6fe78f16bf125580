-- Historical metrics: attempt outcomes by queue and job type, available without reading any job.
--
--   nothing -> tallied         every ten seconds, by each worker with new outcomes (tally.sql)
--   tallied -> tally_total     by any worker, within about a minute (roll_up)
--   tally_total -> nothing     by any worker, after the retention (prune_totals.sql)
--
-- tally_total contains every count four times: in steps of 10 seconds, a minute, an hour and a day. A query for any period therefore
-- reads few rows. One statement deletes a row of tallied and adds its counts to all four steps, so each row is counted exactly once.
-- Readers add up both tables.
--
-- Each attempt counts as completed, retried, dead, cancelled, snoozed or released. Additional counts describe how retried or dead
-- attempts ended: timed_out, panicked and crashed (crashed attempts may also be cancelled). lease_lost counts attempts whose worker lost
-- the lease, so that their verdicts were rejected or not sent. Expired jobs had no attempt.
--
-- A histogram counts attempts by duration (queue.bounds_ms). In the tables, a histogram is one number with 16 decimal digits per bucket,
-- with the lowest bucket in the lowest digits (see queue.histogram_buckets). Adding such numbers is twenty times as fast as adding arrays.

-- Number of the last batch of outcomes from each process. A batch that is sent again after a lost response has the same number, and is
-- not counted twice.
create table queue.tally_source (
  source  uuid         primary key,
  number  bigint       not null,
  at      timestamptz  not null,
  constraint tally_source_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table queue.tallied (
  at          timestamptz  not null,  -- start of the ten-second step
  queue       text         not null,
  job_type    text         not null,
  completed   bigint       not null,
  retried     bigint       not null,
  dead        bigint       not null,
  cancelled   bigint       not null,
  snoozed     bigint       not null,
  released    bigint       not null,
  expired     bigint       not null,
  lease_lost  bigint       not null,
  timed_out   bigint       not null,
  panicked    bigint       not null,
  crashed     bigint       not null,
  run         numeric      not null,
  start       numeric      not null,
  constraint tallied_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

create index tallied_at on queue.tallied (at);
-- A publication of all tables requires a replica identity, and `tallied` has no key because rows may be identical.
alter table queue.tallied replica identity full;

-- Totals of attempt outcomes by step. Queue and job type are empty in rows that cover all queues and job types. They are `*` in rows that
-- cover the pairs of queue and job type beyond the daily maximum of about 500.
create table queue.tally_total (
  step        integer      not null,  -- step length in seconds
  at          timestamptz  not null,
  queue       text         not null,
  job_type    text         not null,
  completed   bigint       not null,
  retried     bigint       not null,
  dead        bigint       not null,
  cancelled   bigint       not null,
  snoozed     bigint       not null,
  released    bigint       not null,
  expired     bigint       not null,
  lease_lost  bigint       not null,
  timed_out   bigint       not null,
  panicked    bigint       not null,
  crashed     bigint       not null,
  run         numeric      not null,
  start       numeric      not null,
  constraint tally_total_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00'),
  constraint tally_total_of primary key (step, queue, job_type, at)
) with (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

create index tally_total_at on queue.tally_total (step, at);

-- Returns the upper bounds of a histogram's buckets in ms. The first bucket counts durations below 1 ms. The 24th and last bucket counts
-- durations of a day or longer.
create function queue.bounds_ms() returns bigint[]
  language sql immutable parallel safe
  return '{1,2,5,10,20,50,100,200,500,1000,2000,5000,10000,20000,60000,120000,300000,600000,1800000,3600000,10800000,28800000,86400000}'::bigint[];

-- Returns a quantile of a histogram in ms, for example the median for share 0.5. Returns null if the histogram is empty. The value is
-- interpolated logarithmically within its bucket. In the last bucket, the value is one day.
create function queue.quantile(histogram bigint[], share double precision) returns double precision
  language sql immutable parallel safe
begin atomic
  with buckets as (
    select b.n, b.jobs, pg_catalog.sum(b.jobs) over (order by b.n) as up_to, pg_catalog.sum(b.jobs) over () as jobs_in_all,
      coalesce((queue.bounds_ms())[b.n - 1], 0)::double precision as low, (queue.bounds_ms())[b.n]::double precision as high
    from pg_catalog.unnest(histogram) with ordinality b (jobs, n)
  ), wanted as (
    select b.*, least(greatest((share * b.jobs_in_all::double precision - (b.up_to - b.jobs)::double precision) / b.jobs, 0), 1) as part
    from buckets b
    where b.jobs > 0 and b.up_to::double precision >= share * b.jobs_in_all::double precision
    order by b.n
    limit 1
  )
  select case when w.high is null then w.low when w.low = 0 then w.high * w.part else w.low * pg_catalog.power(w.high / w.low, w.part) end
  from wanted w;
end;

-- Returns the buckets of a histogram that is stored as one number.
create function queue.histogram_buckets(histogram numeric) returns bigint[]
  language plpgsql immutable strict parallel safe
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- The digits are converted to bytes, because substr searches a text from the start.
  d  constant bytea := decode(lpad(histogram::text, 384, '0'), 'escape');
begin
  return array[
    encode(substr(d, 369, 16), 'escape'), encode(substr(d, 353, 16), 'escape'), encode(substr(d, 337, 16), 'escape'),
    encode(substr(d, 321, 16), 'escape'), encode(substr(d, 305, 16), 'escape'), encode(substr(d, 289, 16), 'escape'),
    encode(substr(d, 273, 16), 'escape'), encode(substr(d, 257, 16), 'escape'), encode(substr(d, 241, 16), 'escape'),
    encode(substr(d, 225, 16), 'escape'), encode(substr(d, 209, 16), 'escape'), encode(substr(d, 193, 16), 'escape'),
    encode(substr(d, 177, 16), 'escape'), encode(substr(d, 161, 16), 'escape'), encode(substr(d, 145, 16), 'escape'),
    encode(substr(d, 129, 16), 'escape'), encode(substr(d, 113, 16), 'escape'), encode(substr(d, 97, 16), 'escape'),
    encode(substr(d, 81, 16), 'escape'), encode(substr(d, 65, 16), 'escape'), encode(substr(d, 49, 16), 'escape'),
    encode(substr(d, 33, 16), 'escape'), encode(substr(d, 17, 16), 'escape'), encode(substr(d, 1, 16), 'escape')
  ]::bigint[];
end
$$;

-- tallied -> tally_total: adds up to `most` rows to the totals, either rows of one queue and job type or any rows. Returns the number of
-- added rows.
--
-- On each day, about the first 500 pairs of queue and job type have rows of their own. The counts of later pairs are added to rows with
-- the name `*`. Safe: concurrent calls take different rows, and lock totals in a global order.
create function queue.add_tallies(most integer, only_queue text, only_type text) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
declare
  epoch  constant timestamptz := '1970-01-01+00';
  added  bigint;
begin
  with taken as materialized (
    delete from queue.tallied t
    where t.ctid = any (array(
      select o.ctid
      from queue.tallied o
      where only_queue is null or (o.queue = only_queue and o.job_type = only_type)
      order by o.at
      limit most
      for update skip locked
    ))
    returning t.*, date_bin('1 day', t.at, epoch) as day
  ), pairs as (
    select p.day, p.queue, p.job_type, exists (
        select from queue.tally_total d where d.step = 86400 and d.at = p.day and d.queue = p.queue and d.job_type = p.job_type
      ) as is_known
    from (select distinct t.day, t.queue, t.job_type from taken t) p
  ), named as materialized (
    select p.day, p.queue, p.job_type
    from (select p.*, row_number() over (partition by p.day, p.is_known order by p.queue, p.job_type) as place from pairs p) p
    where p.is_known
      or p.place + (select count(*) from queue.tally_total d where d.step = 86400 and d.at = p.day and d.queue <> '' and d.queue <> '*') <= 500
  ), totals as (
    insert into queue.tally_total as o
    select s.step, date_bin(make_interval(secs => s.step), t.at, epoch), coalesce(t.queue, ''), coalesce(t.job_type, ''),
      sum(t.completed), sum(t.retried), sum(t.dead), sum(t.cancelled), sum(t.snoozed), sum(t.released), sum(t.expired), sum(t.lease_lost),
      sum(t.timed_out), sum(t.panicked), sum(t.crashed), sum(t.run), sum(t.start)
    from (
      select t.at, coalesce(n.queue, '*') as queue, coalesce(n.job_type, '*') as job_type, t.completed, t.retried, t.dead, t.cancelled, t.snoozed,
        t.released, t.expired, t.lease_lost, t.timed_out, t.panicked, t.crashed, t.run, t.start
      from taken t
      left join named n on n.day = t.day and n.queue = t.queue and n.job_type = t.job_type
    ) t
    cross join unnest('{10,60,3600,86400}'::int[]) s (step)
    group by grouping sets ((1, 2, t.queue, t.job_type), (1, 2))
    order by 1, 3, 4, 2
    on conflict (step, queue, job_type, at) do update
    set completed = o.completed + excluded.completed, retried = o.retried + excluded.retried, dead = o.dead + excluded.dead,
      cancelled = o.cancelled + excluded.cancelled, snoozed = o.snoozed + excluded.snoozed, released = o.released + excluded.released,
      expired = o.expired + excluded.expired, lease_lost = o.lease_lost + excluded.lease_lost, timed_out = o.timed_out + excluded.timed_out,
      panicked = o.panicked + excluded.panicked, crashed = o.crashed + excluded.crashed,
      run = o.run + excluded.run, start = o.start + excluded.start
  )
  select count(*) from taken into added;
  return added;
end
$$;

-- tallied -> tally_total: adds up to `most` rows to the totals. Does nothing if all rows are younger than 30 seconds. Returns the number
-- of rows, and the number of refused pairs of queue and job type. A pair is refused if an open transaction has locked its totals, or if
-- the server rejects them. The rows of a refused pair stay in tallied, where readers find them.
create function queue.roll_up(most integer, out added bigint, out refused integer)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '1s'
as $$
declare
  one  record;
begin
  added := 0;
  refused := 0;
  if not exists (select from queue.tallied t where t.at < now() - interval '30 s') then
    return;
  end if;
  begin
    added := queue.add_tallies(most, null, null);
    return;
  exception when lock_not_available or deadlock_detected or data_exception or integrity_constraint_violation or raise_exception then
    added := 0;
  end;
  for one in select t.queue, t.job_type from (select t.queue, t.job_type from queue.tallied t order by t.at limit most) t group by 1, 2 loop
    begin
      added := added + queue.add_tallies(most, one.queue, one.job_type);
    exception when lock_not_available or deadlock_detected or data_exception or integrity_constraint_violation or raise_exception then
      refused := refused + 1;
    end;
    -- Ends early to keep the rows added so far. A call that exceeds the caller's timeout would be rolled back.
    exit when refused = 5 or clock_timestamp() > now() + interval '4 s';
  end loop;
end
$$;

-- Implements queue.history. Histograms are returned as stored, as one number each.
create function queue.read_history(span interval, width interval, of_queue text, of_type text, each boolean)
  returns table (
    at timestamptz, seconds double precision, queue text, job_type text, completed bigint, retried bigint, dead bigint, cancelled bigint,
    snoozed bigint, released bigint, expired bigint, lease_lost bigint, timed_out bigint, panicked bigint, crashed bigint,
    run numeric, start numeric, left_out integer
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_custom_plan
  set jit = off
as $$
declare
  epoch   constant timestamptz := '1970-01-01+00';
  levels  constant integer[] := '{10,60,3600,86400}';
  looked  double precision;
  grain   integer;         -- shortest step length available for the period, in seconds
  steps   integer := 1;
  most    integer := 1000; -- maximum number of pairs of queue and type
  since   timestamptz;
  upto    timestamptz;
  froms   timestamptz[] := '{}';
  untils  timestamptz[] := '{}';
  read    integer[] := '{}';
  queues  text[] := '{""}';
  types   text[] := '{""}';
  others  integer := 0;
begin
  if span is null or span <= interval '0' or width <= interval '0' then
    raise invalid_parameter_value using message = 'queue.history: last and step must be intervals longer than zero';
  end if;
  looked := greatest(extract(epoch from least(span, interval '30 days')), 10);
  if width is null then
    grain := case when looked <= 600 then 10 when looked <= 86400 then 60 else 3600 end;
    since := date_bin(make_interval(secs => grain), now() - make_interval(secs => looked), epoch);
    upto := since;
    -- For each step length, reads the totals up to the first boundary of the next longer step length. For the longest step length, reads
    -- the totals up to the current time.
    for l in array_position(levels, grain) .. 4 loop
      read := read || levels[l];
      froms := froms || upto;
      upto := case when l < 4 then date_bin(make_interval(secs => levels[l + 1]), upto - interval '1 us', epoch)
        + make_interval(secs => levels[l + 1]) else 'infinity' end;
      untils := untils || case when upto < now() then upto else 'infinity' end;
      exit when upto >= now();
    end loop;
  else
    grain := case when looked <= 3600 then 10 when looked <= 86400 then 60 else 3600 end;
    grain := grain * ceil(extract(epoch from least(width, interval '30 days')) / grain)::integer;
    steps := ceil(looked / grain)::integer + 1;
    since := date_bin(make_interval(secs => grain), now() - make_interval(secs => looked), epoch);
    read := array[(select max(v.step) from unnest(levels) v (step) where grain % v.step = 0)];
    froms := array[since];
    untils := array['infinity'::timestamptz];
    if each then
      most := greatest(least(2000 / steps, floor(20000 * read[1] / looked)::integer), 1);
    end if;
  end if;
  if each or of_queue is not null or of_type is not null then
    select coalesce(array_agg(p.queue), '{}'), coalesce(array_agg(p.job_type), '{}'), coalesce(max(p.pairs) - count(*), 0)
    from (
      select p.queue, p.job_type, count(*) over () as pairs
      from (
        select t.queue, t.job_type, t.completed + t.retried + t.dead as jobs
        from queue.tally_total t
        where t.step = 86400 and t.at >= date_bin('1 day', since, epoch) and t.queue <> ''
        union all
        select t.queue, t.job_type, t.completed + t.retried + t.dead
        from queue.tallied t
        where t.at >= since
      ) p
      where (of_queue is null or p.queue = of_queue) and (of_type is null or p.job_type = of_type)
      group by p.queue, p.job_type
      order by sum(p.jobs) desc, p.queue, p.job_type
      limit most
    ) p
    into queues, types, others;
  end if;
  return query
  with pairs as materialized (
    select p.queue, p.job_type from unnest(queues, types) p (queue, job_type)
  ), found as (
    select t.*
    from pairs p
    cross join unnest(read, froms, untils) k (step, since, until)
    cross join lateral (
      select t.at, t.queue, t.job_type, t.completed, t.retried, t.dead, t.cancelled, t.snoozed, t.released, t.expired, t.lease_lost, t.timed_out,
        t.panicked, t.crashed, t.run, t.start
      from queue.tally_total t
      where t.step = k.step and t.queue = p.queue and t.job_type = p.job_type and t.at >= k.since and t.at < k.until
      offset 0
    ) t
    union all
    select t.at, t.queue, t.job_type, t.completed, t.retried, t.dead, t.cancelled, t.snoozed, t.released, t.expired, t.lease_lost, t.timed_out,
      t.panicked, t.crashed, t.run, t.start
    from queue.tallied t
    where t.at >= since and (queues = '{""}' or (t.queue, t.job_type) in (select p.queue, p.job_type from pairs p))
  ), summed as (
    select case when width is null then since else date_bin(make_interval(secs => grain), t.at, epoch) end as at,
      case when each then t.queue end as queue, case when each then t.job_type end as job_type,
      sum(t.completed)::bigint, sum(t.retried)::bigint, sum(t.dead)::bigint, sum(t.cancelled)::bigint, sum(t.snoozed)::bigint,
      sum(t.released)::bigint, sum(t.expired)::bigint, sum(t.lease_lost)::bigint, sum(t.timed_out)::bigint, sum(t.panicked)::bigint,
      sum(t.crashed)::bigint, sum(t.run), sum(t.start)
    from found t
    group by 1, 2, 3
  )
  select s.at, extract(epoch from case when width is null then now() else least(s.at + make_interval(secs => grain), now()) end - s.at)::float8,
    -- Without `each`, returns the names given as the filter.
    coalesce(s.queue, of_queue), coalesce(s.job_type, of_type), s.completed, s.retried, s.dead, s.cancelled, s.snoozed, s.released, s.expired,
    s.lease_lost, s.timed_out, s.panicked, s.crashed, s.run, s.start, others
  from summed s (at, queue, job_type, completed, retried, dead, cancelled, snoozed, released, expired, lease_lost, timed_out, panicked, crashed, run,
    start)
  order by s.at, s.queue, s.job_type
  limit 2000;
end
$$;

-- Returns the attempt outcomes of the period of length `last` that ends now. The maximum of `last` is 30 days. The period is divided into
-- steps of length `step` (null: a single step). Counts only the given queue and job type (null: all). With `apart`, returns a row for each
-- queue and job type instead of the total. If not all pairs fit into 2,000 rows, only the busiest pairs are returned, and `left_out` is the
-- number of omitted pairs.
--
-- A step without attempts has no row. Steps start at whole multiples of their length since 1970, in UTC, so the first step may start
-- slightly before the period. The shortest step is 10 seconds for the last hour, a minute for the last day, and an hour for longer
-- periods. `seconds` is the length of a step, or the elapsed part of the current step.
--
-- In the columns queue and job_type, null means all, and * means the pairs that exceed the maximum number of pairs per day. `run` is a
-- histogram of the run times of handlers. `start` is a histogram of the times that jobs spent in the state ready before their start. See
-- queue.quantile.
create function queue.history(
  last interval default '1 hour', step interval default null, queue text default null, job_type text default null, apart boolean default false
)
  returns table (
    at timestamptz, seconds double precision, queue text, job_type text, completed bigint, retried bigint, dead bigint, cancelled bigint,
    snoozed bigint, released bigint, expired bigint, lease_lost bigint, timed_out bigint, panicked bigint, crashed bigint,
    run bigint[], start bigint[], left_out integer
  )
  language sql stable
begin atomic
  select h.at, h.seconds, h.queue, h.job_type, h.completed, h.retried, h.dead, h.cancelled, h.snoozed, h.released, h.expired, h.lease_lost,
    h.timed_out, h.panicked, h.crashed, queue.histogram_buckets(h.run), queue.histogram_buckets(h.start), h.left_out
  from queue.read_history(history.last, history.step, history.queue, history.job_type, history.apart) h;
end;
