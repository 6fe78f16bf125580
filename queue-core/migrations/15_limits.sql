-- Limits on the number of concurrently running jobs, and on the number of starts in a period. A limit covers a job type, several types
-- that share the limit's name, or a queue. Enqueues, verdicts, and claims of lanes without a limit do not read the limits.
--
--   bound       settings declared in code (declare_limits) or set by operators (set_limit, unset_limit); settings of operators take
--               precedence
--   bound_type  the job types that refer to a limit by name
--   limiter     one row for each limit, locked only by claims under the limit
--   permit      index of the leases that may hold permits of a limit; only the leases themselves are authoritative
--   rate        starts under a limit with a rate
--
-- A limit's name states its scope: `type:send_email`, `queue:mail`, or a name shared by types. Every worker has to acknowledge the
-- covered lanes before any job is claimed under the limit. Workers acknowledge limits in the same way as pauses (worker.paused_seen), so
-- limits and pauses draw numbers from the same sequence.

create table queue.bound (
  name         text         not null,
  by_operator  boolean      not null,
  limit_id     bigint       not null generated always as (queue.hash(name)) stored,
  number       bigint       not null,  -- workers that have acknowledged pauses up to this number know the covered lanes
  revision     bigint       not null,  -- new number with every change of the limit
  concurrency  integer,                -- maximum number of concurrently running jobs; null: unlimited
  starts       integer,                -- maximum number of starts in period_ms; null: unlimited
  period_ms    bigint,
  burst        integer,                -- maximum number of starts in the shorter period of period_ms * burst / starts
  keyed        boolean      not null default false,  -- whether the values apply to each fairness key separately, see 17_keyed.sql
  reason       text,
  since        timestamptz  not null default now(),
  set_by       text         not null default session_user,
  constraint bound_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint bound_pkey primary key (name, by_operator),
  constraint bound_name_is_a_name check (name ~ '^(type:|queue:)?[A-Za-z0-9_.:-]{1,64}$'),
  constraint bound_concurrency_in_range check (concurrency between 0 and 1000000),
  constraint bound_rate_in_range check (starts between 1 and 100000 and period_ms between 100 and 31536000000),
  constraint bound_rate_is_whole check ((starts is null) = (period_ms is null)),
  constraint bound_burst_in_range check (burst is null or (starts is not null and burst between 1 and starts)),
  constraint bound_reason_is_short check (length(reason) <= 1000)
);
create index bound_by_limit_id on queue.bound (limit_id);

create table queue.bound_type (
  job_type  text  not null,
  name      text  not null,
  constraint bound_type_pkey primary key (job_type, name)
);

create table queue.limiter (
  limit_id     bigint       not null,
  adopted      bigint       not null default 0,            -- highest bound.number for which permit contains all leases
  has_waiters  boolean      not null default false,        -- whether a worker found no permit and waits for a notification
  not_before   timestamptz  not null default '-infinity',  -- earliest next start, set by a handler's slow-down
  read_at      timestamptz  not null default '-infinity',  -- last time at which all leases were read
  fair_ids     bigint[]     not null default '{}',         -- up to a hundred fair queues in which workers found no permit and wait for one
  constraint limiter_times_in_range check (greatest(not_before, read_at) < '10000-01-01+00'),
  constraint limiter_pkey primary key (limit_id)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

create sequence queue.permit_seq;
create function queue.next_permit() returns bigint
  language sql volatile
  return pg_catalog.nextval('queue.permit_seq'::regclass);

create table queue.permit (
  limit_id  bigint   not null,
  place     bigint   not null default queue.next_permit(),  -- position in claim order; index entries below the lowest permit are dead
  token     uuid     not null,
  n         integer  not null,  -- upper bound of the number of the lease's jobs that hold a permit
  ids       bigint[],           -- for a per-key limit: jobs that hold a permit, each with its fair queue in `fair_ids`
  fair_ids  bigint[],
  constraint permit_pkey primary key (limit_id, place)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table queue.permit alter ids set storage external, alter fair_ids set storage external;

create table queue.rate (
  limit_id  bigint   not null,
  fair_id   bigint   not null default 0,  -- fair queue under a per-key limit, otherwise 0
  at_ms     bigint   not null,  -- latest start time of the jobs in ms, by the database clock
  n         integer  not null,
  total     bigint   not null default 0,  -- for a per-key limit: cumulative number of the fair queue's starts, including this row
  constraint rate_pkey primary key (limit_id, fair_id, at_ms)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Returns the time of the database clock in milliseconds since 1970.
create function queue.clock_ms() returns bigint
  language sql volatile
  return (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint;

-- Settings in force: the operator's setting of each limit, or else the setting declared in code. A job under a rate has to start within
-- `within_ms` after the claim. The start is counted at the end of this time, so no period contains more starts than the rate allows.
create view queue.bound_in_force as
select b.name, b.limit_id, b.number, b.revision, b.concurrency, b.starts, b.period_ms, b.burst, b.keyed, b.by_operator, b.reason, b.since, b.set_by,
  case when b.starts is not null then least(250, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 20) end as within_ms
from queue.bound b
where b.by_operator or not exists (select from queue.bound o where o.name = b.name and o.by_operator);

-- Settings in force, as in bound_in_force. The values of a per-key limit are null, because they apply to each fairness key separately.
create view queue.bound_in_all as
select b.limit_id, b.number, b.keyed, b.within_ms, f.concurrency, f.starts, f.period_ms, f.burst
from queue.bound_in_force b
left join lateral (select b.concurrency, b.starts, b.period_ms, b.burst) f on not b.keyed;

-- Returns whether a limit covers jobs of this queue and stored job type.
create function queue.covers(name text, queue text, job_type text) returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select covers.name = 'queue:' || covers.queue or covers.name = 'type:' || queue.type_of(covers.job_type)
    or exists (select from queue.bound_type t where t.job_type = queue.type_of(covers.job_type) and t.name = covers.name)
$$;

-- Returns a limit's number. Returns a new number if the limit is new, or if `renumber` is set because the covered lanes change. Workers
-- then acknowledge the limit again.
create function queue.limit_number(name text, renumber boolean) returns bigint
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select max(b.number) from queue.bound b where b.name = limit_number.name and not renumber), nextval('queue.pause_seq'))
$$;

-- Inserts the missing rows of `limiter` for the limits in `names`. In read committed, the function skips visible limiters, because their
-- insert would wait for claims that update the limiters. At higher isolation levels, a limiter may be visible although another session has
-- deleted it. The function then tries each insert, which may wait.
create function queue.ensure_limiters(names text[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into queue.limiter (limit_id)
  select queue.hash(s.name)
  from unnest(ensure_limiters.names) s (name)
  where current_setting('transaction_isolation') <> 'read committed' or not exists (select from queue.limiter g where g.limit_id = queue.hash(s.name))
  on conflict do nothing;
end
$$;

-- Sets a limit that overrides the limit declared in code until unset_limit is called. Null means unlimited. A limit whose values are all
-- null still costs each claim one additional statement. With `keyed`, the values apply to each fairness key separately. If `keyed` is
-- null, the current mode stays.
--
-- The limit takes effect at commit, from the next claim on. Running jobs continue, even if they exceed the limit.
create function queue.set_limit(
  name text, concurrency integer default null, starts integer default null, period interval default null, burst integer default null,
  reason text default null, keyed boolean default null
) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
declare
  was  boolean;
  wish boolean;
begin
  lock table queue.paused in share row exclusive mode;
  was := (select b.keyed from queue.bound_in_force b where b.name = set_limit.name);
  wish := coalesce(set_limit.keyed, was, false);
  perform queue.ensure_limiters(array[set_limit.name]);
  insert into queue.bound as b (name, by_operator, number, revision, concurrency, starts, period_ms, burst, keyed, reason)
  values (set_limit.name, true, queue.limit_number(set_limit.name, wish <> was), nextval('queue.pause_seq'), set_limit.concurrency, set_limit.starts,
    (extract(epoch from set_limit.period) * 1000)::bigint, set_limit.burst, wish, set_limit.reason)
  on conflict on constraint bound_pkey do update
  set number = excluded.number, keyed = excluded.keyed, revision = excluded.revision, concurrency = excluded.concurrency, starts = excluded.starts,
    period_ms = excluded.period_ms, burst = excluded.burst, reason = excluded.reason, since = excluded.since, set_by = excluded.set_by;
  perform queue.notify('wake', '!control');
end
$$;

-- Removes an operator's setting, so that any setting declared in code applies again. Returns false if there is no operator's setting.
create function queue.unset_limit(name text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
declare
  was  boolean;
  had  bigint;
begin
  lock table queue.paused in share row exclusive mode;
  delete from queue.bound b where b.name = unset_limit.name and b.by_operator returning b.keyed, b.number into was, had;
  if not found then
    return false;
  end if;
  update queue.bound b
  set revision = nextval('queue.pause_seq'), number = queue.limit_number(b.name, b.keyed <> was or b.number < had)
  where b.name = unset_limit.name;
  perform queue.forget_limiters();
  perform queue.notify('wake', '!control');
  return true;
end
$$;

-- Deletes the limiters, permits and rates of limits without settings. Waits for claims under these limits, because such a claim has locked
-- the limiter. A later claim finds it deleted.
create function queue.forget_limiters() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queue.limiter g where not exists (select from queue.bound b where b.limit_id = g.limit_id);
  delete from queue.permit h where not exists (select from queue.limiter g where g.limit_id = h.limit_id);
  delete from queue.rate r where not exists (select from queue.limiter g where g.limit_id = r.limit_id);
end
$$;

-- Records the limits that a worker's code declares, and the job types that refer to these limits. Called before the worker's first claim.
-- Deletes the limits that the code no longer declares for its job types and queues. If workers of two releases declare different limits,
-- the worker that started last takes precedence. Does not wait if nothing has changed. Returns whether anything has changed.
create function queue.declare_limits(
  types text[], queues text[], of_types text[], of_names text[],
  names text[], concurrencies integer[], starts integer[], periods_ms bigint[], bursts integer[], keyeds boolean[]
) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '100ms'
as $$
declare
  changed  text[];
  turned   text[];  -- limits whose mode (per key or total) changed
  moved    text[];
  deleted  text[];
begin
  for attempt in 1..2 loop
    select coalesce(array_agg(distinct t.name), '{}') into moved
    from (
      (select s.job_type, s.name from unnest(of_types, of_names) s (job_type, name)
       except select t.job_type, t.name from queue.bound_type t)
      union all
      (select t.job_type, t.name from queue.bound_type t where t.job_type = any (types)
       except select s.job_type, s.name from unnest(of_types, of_names) s (job_type, name))
    ) t;
    select coalesce(array_agg(s.name), '{}'), coalesce(array_agg(s.name) filter (where b.keyed <> s.keyed), '{}')
    into changed, turned
    from unnest(names, concurrencies, declare_limits.starts, periods_ms, bursts, keyeds) s (name, concurrency, starts, period_ms, burst, keyed)
    left join queue.bound b on b.name = s.name and not b.by_operator
    where b.name is null
      or (b.concurrency, b.starts, b.period_ms, b.burst, b.keyed) is distinct from (s.concurrency, s.starts, s.period_ms, s.burst, s.keyed);
    select coalesce(array_agg(b.name), '{}') into deleted
    from queue.bound b
    where not b.by_operator and b.name <> all (names)
      and (b.name = any (array(select 'type:' || t from unnest(types) t union all select 'queue:' || q from unnest(queues) q))
        or (b.name !~ '^(type|queue):' and b.name = any (moved)
          and not exists (select from queue.bound_type t where t.name = b.name and t.job_type <> all (types))));
    exit when attempt = 2;
    if cardinality(moved) + cardinality(changed) + cardinality(deleted) = 0 then
      return false;
    end if;
    lock table queue.paused in share row exclusive mode;
  end loop;
  delete from queue.bound_type t
  where t.job_type = any (types)
    and not exists (select from unnest(of_types, of_names) s (job_type, name) where s.job_type = t.job_type and s.name = t.name);
  insert into queue.bound_type (job_type, name) select s.job_type, s.name from unnest(of_types, of_names) s (job_type, name) on conflict do nothing;
  perform queue.ensure_limiters(names);
  insert into queue.bound as b (name, by_operator, number, revision, concurrency, starts, period_ms, burst, keyed)
  select s.name, false, queue.limit_number(s.name, s.name = any (moved || turned)), nextval('queue.pause_seq'), s.concurrency, s.starts, s.period_ms,
    s.burst, s.keyed
  from unnest(names, concurrencies, declare_limits.starts, periods_ms, bursts, keyeds) s (name, concurrency, starts, period_ms, burst, keyed)
  where s.name = any (changed)
  on conflict on constraint bound_pkey do update
  set number = excluded.number, keyed = excluded.keyed, revision = excluded.revision, concurrency = excluded.concurrency, starts = excluded.starts,
    period_ms = excluded.period_ms, burst = excluded.burst, since = excluded.since, set_by = excluded.set_by;
  -- A limit that gains or loses lanes needs a new number, so that workers acknowledge it again.
  update queue.bound b set number = nextval('queue.pause_seq'), revision = nextval('queue.pause_seq') where b.name = any (moved);
  delete from queue.bound b where b.name = any (deleted) and not b.by_operator;
  perform queue.forget_limiters();
  perform queue.notify('wake', '!control');
  return true;
end
$$;

-- Returns the limits, ordered by name. A row contains:
--   concurrency to keyed   the setting in force
--   by_operator to set_by  origin and author of this setting
--   code_*, in_code        the setting declared in code, even if an operator has overridden it
--   used                   number of held permits
--   waiting, partial       number of ready jobs in covered lanes, counted up to `most`, and whether there are more
--   next_ms                delay in ms until the next start; null if a job may start now, or only after another job has ended
--   awaits                 number of workers that have not yet acknowledged the covered lanes; until then the limit is closed
--
-- SECURITY DEFINER, because readers may not read the tokens of leases.
create function queue.limits(most integer default 10000)
  returns table (
    name text, concurrency integer, starts integer, period_ms bigint, burst integer, keyed boolean,
    by_operator boolean, reason text, since timestamptz, set_by text,
    code_concurrency integer, code_starts integer, code_period_ms bigint, code_burst integer, in_code boolean,
    used bigint, waiting bigint, partial boolean, next_ms float8, awaits bigint
  )
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return query
  -- The lanes are joined by name to the limits that cover them, by the same rules as in queue.covers.
  with covered as materialized (
    select n.name, l.lane
    from (select distinct l.lane, l.queue, queue.type_of(l.job_type) as job_type from queue.lane l) l
    cross join lateral (
      select 'queue:' || l.queue as name
      union
      select 'type:' || l.job_type
      union
      select t.name from queue.bound_type t where t.job_type = l.job_type
    ) n
    where exists (select from queue.bound e where e.name = n.name)
  )
  select b.name, b.concurrency, b.starts, b.period_ms, b.burst, b.keyed, b.by_operator, b.reason, b.since, b.set_by,
    c.concurrency, c.starts, c.period_ms, c.burst, c.name is not null,
    (select coalesce(sum(least(h.n, cardinality(l.ids))), 0)
      from queue.permit h join queue.lease l on l.token = h.token where h.limit_id = b.limit_id),
    least(w.jobs, most), w.jobs > most,
    (select max(r.wait_ms) from queue.free_permits(array[b.limit_id], null) r where r.free <= 0),
    (select count(*) from queue.limit_awaits(b.number) where g.adopted < b.number)
  from queue.bound_in_force b
  join queue.limiter g on g.limit_id = b.limit_id
  left join queue.bound c on c.name = b.name and not c.by_operator
  cross join lateral (
    select count(*) as jobs
    from (
      select
      from (select e.lane from covered e where e.name = b.name) l
      -- The index is read from the end, because dead entries accumulate at the front.
      cross join lateral (select from queue.ready r where r.lane = l.lane order by r.seq desc limit most + 1) r
      limit most + 1
    ) w
  ) w
  order by b.name;
end
$$;

-- Permits, which a claim takes for jobs under limits.
--
-- A claim chooses candidates without waiting, then locks the limiters of the limits in a global order. After locking, the claim sees all
-- commits of earlier claims. The locks serialize the claims under one limit, so a claim finds in permit and rate all jobs that earlier
-- claims have taken. Limiters are table rows, so a role without privileges on the store cannot block them.

-- Returns the number of jobs that may start now under a rate that counts all keys together. If the number is not positive, also returns
-- the delay in ms until the next start.
create function queue.starts_left(limit_id bigint, starts integer, period_ms bigint, burst integer, out free bigint, out wait_ms float8)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  at  bigint := queue.clock_ms();
begin
  select min(m.starts - u.n), max(o.wait_ms)
  into free, wait_ms
  from (values (starts_left.starts, starts_left.period_ms), (starts_left.burst, starts_left.period_ms * starts_left.burst / starts_left.starts))
    m (starts, period_ms)
  cross join lateral (
    select coalesce(sum(r.n), 0) as n
    from queue.rate r
    where r.limit_id = starts_left.limit_id and r.fair_id = 0 and r.at_ms > at - m.period_ms
  ) u
  left join lateral (
    select (r.at_ms + m.period_ms - at)::float8 as wait_ms
    from (
      select r.at_ms, sum(r.n) over (order by r.at_ms) as deleted
      from queue.rate r
      where r.limit_id = starts_left.limit_id and r.fair_id = 0 and r.at_ms > at - m.period_ms
    ) r
    where r.deleted > u.n - m.starts
    order by r.at_ms
    limit 1
  ) o on u.n >= m.starts
  where m.starts is not null;
end
$$;

-- Returns one row for each limit in `limit_ids`. `free` is the number of free permits (null: unlimited). `wait_ms` is the delay in ms until
-- the next start (null: no known delay). `is_new` means that the limit is new, or that its lanes or mode have changed, so workers have to
-- acknowledge the limit.
--
-- Reads each limit's permits from its floor on, or from the first permit if the floor is null. Also returns the lowest position of a held
-- permit. The function is stable, so it is inlined into the calling statements and sees their snapshot.
create function queue.free_permits(limit_ids bigint[], floors bigint[]) returns table (
    limit_id bigint, has_waiters boolean, free bigint, wait_ms float8, within_ms bigint, floor bigint, is_new boolean, keyed boolean
  )
  language sql stable
begin atomic
  select g.limit_id, g.has_waiters, least(b.concurrency - h.n, w.free, case when p.wait_ms > 0 then 0 end), greatest(w.wait_ms, p.wait_ms),
    b.within_ms, h.lowest, g.adopted < b.number, b.keyed
  from unnest(free_permits.limit_ids, free_permits.floors) f (limit_id, floor)
  join queue.limiter g on g.limit_id = f.limit_id
  join queue.bound_in_all b on b.limit_id = g.limit_id
  cross join lateral (
    select coalesce(sum(h.n), 0) as n,
      min(h.place) as lowest
    from queue.permit h
    where h.limit_id = g.limit_id
      and h.place >= coalesce(f.floor, 0)
  ) h
  cross join lateral (
    select case when g.not_before > c.now then date_part('epoch', g.not_before - c.now) * 1000 end as wait_ms from clock_timestamp() c (now)
  ) p
  left join lateral (
    select s.free, s.wait_ms
    from queue.starts_left(g.limit_id, b.starts, b.period_ms, b.burst) s
    where b.starts is not null offset 0
  ) w on true;
end;

-- Updates permits from the leases with these tokens, or from all leases if `tokens` is null. Releases the permits of jobs that have left
-- their lease, even if the end of a job was not reported. The function may release too few permits but never too many.
create function queue.read_permits(limit_ids bigint[], floors bigint[], tokens uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with still as materialized (
    select h.limit_id, h.place, l.n
    from unnest(read_permits.limit_ids, read_permits.floors) f (limit_id, floor)
    join queue.permit h on h.limit_id = f.limit_id
      and h.place >= coalesce(f.floor, 0)
    left join lateral (select cardinality(l.ids) as n from queue.lease l where l.token = h.token offset 0) l on true
    where (read_permits.tokens is null or h.token = any (read_permits.tokens))
      and h.ids is null
  ), deleted as (
    delete from queue.permit h using still s
    where h.limit_id = s.limit_id and h.place = s.place
      and s.n is null
  )
  update queue.permit h set n = s.n from still s
  where h.limit_id = s.limit_id and h.place = s.place
    and s.n < h.n;
end
$$;

-- Returns the live workers that have not acknowledged the limit with the number `number`, and may therefore claim jobs without respecting
-- the limit.
create function queue.limit_awaits(number bigint) returns table (id uuid, name text, host text, pid integer)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select w.id, w.name, w.host, w.pid from queue.worker w where w.paused_seen < limit_awaits.number and w.expires_at > now() order by w.name, w.id
$$;

-- Replaces the permits of each limit in `limit_ids` that is new or whose lanes or mode have changed. The new permits are those of the
-- running jobs. Returns false if a live worker has not acknowledged such a limit yet.
create function queue.count_running(limit_ids bigint[]) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  fresh  record;
begin
  for fresh in
    select b.limit_id, b.name, b.number, b.keyed
    from queue.bound_in_force b
    join queue.limiter g on g.limit_id = b.limit_id and g.adopted < b.number
    where b.limit_id = any (count_running.limit_ids)
  loop
    if exists (select from queue.limit_awaits(fresh.number)) then
      return false;
    end if;
    delete from queue.permit h where h.limit_id = fresh.limit_id;
    insert into queue.permit (limit_id, token, n, ids, fair_ids)
    select fresh.limit_id, l.token, count(*), case when fresh.keyed then array_agg(u.id) end,
      case when fresh.keyed then array_agg(coalesce(j.fair_id, 0)) end
    from queue.lease l
    cross join lateral unnest(l.ids) u (id)
    cross join lateral (select j.lane, j.fair_id from queue.job j where j.id = u.id offset 0) j
    cross join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d
    where queue.covers(fresh.name, d.queue, d.job_type)
    group by l.token;
    if fresh.keyed then
      -- Computes the cumulative totals that a per-key limit needs. Before the limit became a per-key limit, starts of
      -- all jobs were counted as starts of fair queue 0. The rows of such starts may have no total.
      update queue.rate r set total = s.total
      from (select o.at_ms, sum(o.n) over (order by o.at_ms) as total from queue.rate o where o.limit_id = fresh.limit_id and o.fair_id = 0) s
      where r.limit_id = fresh.limit_id and r.fair_id = 0 and r.at_ms = s.at_ms;
    end if;
    update queue.limiter g set adopted = fresh.number where g.limit_id = fresh.limit_id;
  end loop;
  return true;
end
$$;

-- ready -> lease: claims jobs as in claim.sql, from lanes covered by exactly the limits in `limit_ids`. Each row is a job, except the last
-- row, which has no id. The last row contains:
--   closed      reason for taking fewer jobs than available: `gone` (a limit was deleted), `unknown` (not acknowledged by all workers),
--               `full` or `rate`
--   wait_ms     delay in ms until the next possible start; null if a job has to end first
--   at_ms       time of the claim by the database clock
--   within_ms   time after at_ms within which the jobs have to start
--
-- Each job is returned with its turn in the order of service. A job of a fair lane is also returned with its fair queue. Parameters:
--   begins      floor of each lane, or for a fair lane the fair queue after which to continue (queue.choose_fair)
--   freed       leases in which this worker has ended attempts since its last claim under any of the limits
--   slack_ms    minimum of within_ms: the time that the worker may need to start the jobs
--   permits     position from which to read each limit's permits, as returned by an earlier claim of this worker; or null
create function queue.claim_limited(
  token uuid, worker uuid, limit_ids bigint[], lanes bigint[], begins bigint[], is_fair boolean[], mosts integer[], most integer, freed uuid[],
  slack_ms bigint, permits bigint[]
) returns table (
    lane bigint, turn bigint, fair_id bigint, seq bigint, id bigint, attempts smallint, crashes smallint,
    closed text, wait_ms float8, at_ms bigint, within_ms bigint, permit_floors bigint[]
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  chosen  tid[];
  found_  integer;
  free    bigint;
  due_ms  float8;
  within  bigint;
  has_waiters  boolean;
  is_new  boolean;
  keyed   boolean;
  is_read boolean := false;  -- whether all leases were read
  lowest  bigint[];
  took    integer := 0;
  began   bigint;
begin
  chosen := array(
    select p.at
    from unnest(claim_limited.lanes, claim_limited.begins, claim_limited.is_fair, claim_limited.mosts) l (lane, begin, is_fair, most)
    cross join lateral (
      select o.at
      from (
        select r.ctid as at
        from queue.ready r
        where r.lane = l.lane and r.seq >= l.begin and not l.is_fair
        order by r.seq
        limit l.most
        for update skip locked
      ) o
      union all
      select c.at
      from queue.choose_fair(l.lane, l.begin, 1, least(l.most, claim_limited.most)) c
      where l.is_fair
    ) p
    limit claim_limited.most
  );
  if cardinality(chosen) + cardinality(claim_limited.freed) = 0 then
    return;
  end if;
  perform from queue.limiter g where g.limit_id = any (claim_limited.limit_ids) order by g.limit_id for update;
  get diagnostics found_ = row_count;
  if found_ < cardinality(claim_limited.limit_ids) then
    closed := 'gone';
    return next;
    return;
  end if;
  if cardinality(claim_limited.freed) > 0 then
    perform queue.read_permits(claim_limited.limit_ids, claim_limited.permits, claim_limited.freed);
  end if;
  for attempt in 1..3 loop
    select coalesce(min(r.free), claim_limited.most), bool_or(r.has_waiters),
      case when min(r.within_ms) is not null then greatest(min(r.within_ms), claim_limited.slack_ms) end, bool_or(r.is_new), bool_or(r.keyed),
      array_agg(r.floor order by array_position(claim_limited.limit_ids, r.limit_id))
    into free, has_waiters, within, is_new, keyed, lowest
    from queue.free_permits(claim_limited.limit_ids, claim_limited.permits) r;
    if keyed or (is_new and not queue.count_running(claim_limited.limit_ids)) then
      closed := 'unknown';
      return next;
      return;
    end if;
    if not is_new then
      exit when is_read or free >= cardinality(chosen);
      -- Reads all leases to release the permits of jobs whose end was not reported. Runs at most once a second, in the first claim that
      -- lacks permits.
      update queue.limiter g set read_at = clock_timestamp()
      where g.limit_id = any (claim_limited.limit_ids) and g.read_at < clock_timestamp() - interval '1 s';
      exit when not found;
      perform queue.read_permits(claim_limited.limit_ids, claim_limited.permits, null);
      is_read := true;
    end if;
  end loop;
  began := queue.clock_ms();
  if free > 0 and cardinality(chosen) > 0 then
    if array_position(lowest, null) is not null then
      lowest := queue.permit_floors(lowest);
    end if;
    return query
    with taken as materialized (
      delete from queue.ready
      where ctid = any (chosen[1:least(free, claim_limited.most)::integer])
        and exists (select from queue.worker w where w.id = claim_limited.worker and w.expires_at > now())
        and not exists (
          select from queue.limiter g join queue.bound_in_force b on b.limit_id = g.limit_id
          where g.limit_id = any (claim_limited.limit_ids) and g.adopted < b.number
        )
      returning ctid as at, case when fair_id is null then lane else queue.paired_lane(lane) end as lane, fair_id, seq, id,
        least(attempts + 1, 32767)::smallint as attempts, crashes
    ), leased as (
      insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select claim_limited.token, claim_limited.worker, case when min(t.lane) = max(t.lane) then min(t.lane) end, array_agg(t.id),
        array_agg(t.attempts), array_agg(t.crashes)
      from (select * from taken order by id) t
      having count(*) > 0
    ), noted as (
      insert into queue.permit (limit_id, token, n)
      select g, claim_limited.token, c.n from (select count(*) as n from taken) c cross join unnest(claim_limited.limit_ids) g where c.n > 0
    )
    select t.lane, p.turn, t.fair_id, t.seq, t.id, t.attempts, t.crashes, null::text, null::float8, null::bigint, null::bigint, null::bigint[]
    from taken t
    join queue.in_turn(chosen) p on p.at = t.at;
    get diagnostics took = row_count;
  end if;
  if took > 0 and within is not null then
    insert into queue.rate as r (limit_id, at_ms, n)
    select b.limit_id, (began + within + tick.ms) / tick.ms * tick.ms, took
    from queue.bound_in_force b
    cross join lateral (select greatest(1, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 1000) as ms) tick
    where b.limit_id = any (claim_limited.limit_ids) and b.starts is not null
    on conflict on constraint rate_pkey do update set n = r.n + excluded.n;
  end if;
  if took > 0 and random() < 0.01 then
    perform queue.move_permits(claim_limited.limit_ids, lowest);
  end if;
  if free < cardinality(chosen) then
    select max(r.wait_ms) into due_ms from queue.free_permits(claim_limited.limit_ids, claim_limited.permits) r where r.free <= 0;
    update queue.limiter g set has_waiters = true
    from queue.free_permits(claim_limited.limit_ids, claim_limited.permits) r
    where g.limit_id = r.limit_id and not g.has_waiters and r.free <= 0 and r.wait_ms is null;
  elsif has_waiters then
    perform queue.notify_free_permits(claim_limited.limit_ids, claim_limited.permits);
  end if;
  -- `closed` is `unknown` if no job was taken although permits were free. In this case, a limit's lanes or mode have changed, or this
  -- worker's heartbeat has expired.
  closed := case
    when took = 0 and free > 0 and cardinality(chosen) > 0 then 'unknown' when free >= cardinality(chosen) then null
    when due_ms is null then 'full' else 'rate' end;
  wait_ms := due_ms;
  at_ms := began;
  within_ms := within;
  permit_floors := case when took > 0 then lowest end;
  return next;
end
$$;

-- Returns the positions from which to read the permits of limits. `lowest` contains the lowest position of a held permit for each limit,
-- or null if no permit is held. For null, returns a new position. The caller must have locked the limiters, so that no other claim
-- takes a lower position.
create function queue.permit_floors(lowest bigint[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select coalesce(f.place, nextval('queue.permit_seq')) from unnest(permit_floors.lowest) with ordinality f (place, nr) order by f.nr
  );
end
$$;

-- Moves permits that are held for a long time to later positions. The floor then rises above dead index entries kept by an old snapshot.
-- Called by one in a hundred claims. The caller must have taken permits of the limits.
create function queue.move_permits(limit_ids bigint[], floors bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.permit h
  set place = nextval('queue.permit_seq')
  from unnest(move_permits.limit_ids, move_permits.floors) f (limit_id, floor)
  where h.limit_id = f.limit_id and h.place >= f.floor and h.place < currval('queue.permit_seq') - 500;
end
$$;

-- Notifies the workers that were waiting for permits of the limits in `limit_ids`, if permits are still free. A permit is still free if the
-- worker that released it has not used it for another job.
create function queue.notify_free_permits(limit_ids bigint[], floors bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  bigint;
begin
  for one in
    update queue.limiter g set has_waiters = false
    from queue.free_permits(notify_free_permits.limit_ids, notify_free_permits.floors) r
    where g.limit_id = r.limit_id and g.has_waiters and coalesce(r.free, 1) > 0
    returning g.limit_id
  loop
    perform queue.notify('wake', '!permit ' || one);
  end loop;
end
$$;
