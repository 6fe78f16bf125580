-- Limits: how many jobs of a type, of types that share a name, or of a queue may run at once, and how many may begin in a time. An enqueue, the claim
-- of a lane without a limit and a verdict know nothing of them.
--
--   bound       settings: what code says (declare_limits); and what operators say, which wins (set_limit, unset_limit)
--   bound_type  the types that name a limit, and the names of a type
--   gate        a row a limit: whoever claims under the limit locks it, and nobody else does
--   permit      the leases that may hold permits of a limit: an index, for the truth is the lease
--   rate        when jobs began under a limit that has a rate
--
-- A limit is named like a pause: `type:send_email`, `queue:mail`, or by a name that types share. Whose lanes it covers must be known to every worker
-- before anything is claimed under it: workers say so as they say it of pauses (worker.paused_seen), so the numbers are of one sequence.

create table queue.bound (
  name         text         not null,
  by_operator  boolean      not null,
  gate         bigint       not null generated always as (queue.hash(name)) stored,
  number       bigint       not null,  -- a worker that has seen pauses up to here knows which lanes it covers
  revision     bigint       not null,  -- another one with every change
  concurrency  integer,                -- how many run at once; null is any number
  starts       integer,                -- how many begin within period_ms; null is any number
  period_ms    bigint,
  burst        integer,                -- no more than so many begin within period_ms * burst / starts
  keyed        boolean      not null default false,  -- it is that of each line: see 21_keyed.sql
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
create index bound_by_gate on queue.bound (gate);

create table queue.bound_type (
  job_type  text  not null,
  name      text  not null,
  constraint bound_type_pkey primary key (job_type, name)
);

create table queue.gate (
  gate        bigint       not null,
  adopted     bigint       not null default 0,            -- up to this number of its setting, all leases are in permit
  wanted      boolean      not null default false,        -- somebody found no permit, and is to be told of one
  not_before  timestamptz  not null default '-infinity',  -- nothing begins before this: a handler was told to slow down
  read_at     timestamptz  not null default '-infinity',  -- when all of its leases were read last
  lines       bigint[]     not null default '{}',         -- somebody found no room for these lines, and is to be told of some: a hundred at most
  constraint gate_times_in_range check (greatest(not_before, read_at) < '10000-01-01+00'),
  constraint gate_pkey primary key (gate)
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

create sequence queue.permit_seq;
create function queue.next_permit() returns bigint
  language sql volatile
  return pg_catalog.nextval('queue.permit_seq'::regclass);

create table queue.permit (
  gate   bigint   not null,
  place  bigint   not null default queue.next_permit(),  -- in the order of claims: below the lowest are dead entries, which nobody reads
  token  uuid     not null,
  n      integer  not null,  -- how many of the lease's jobs hold a permit, at most
  ids    bigint[],           -- of a limit by key: which, and the line of each
  lines  bigint[],
  constraint permit_pkey primary key (gate, place)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table queue.permit alter ids set storage external, alter lines set storage external;

create table queue.rate (
  gate   bigint   not null,
  line   bigint   not null default 0,  -- of a limit by key; else 0
  at_ms  bigint   not null,  -- by the database's clock: they have begun by then, or never do
  n      integer  not null,
  total  bigint   not null default 0,  -- of a limit by key: how many of its line are counted up to here, from any row before on
  constraint rate_pkey primary key (gate, line, at_ms)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The time by the database's clock, in ms.
create function queue.clock_ms() returns bigint
  language sql volatile
  return (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint;

-- What is in force: of each limit what an operator said, or else what code says. And by when a job under a rate is to have begun after its claim, in
-- ms: it is counted at that time, so that windows are exact for what began.
create view queue.bound_in_force as
select b.name, b.gate, b.number, b.revision, b.concurrency, b.starts, b.period_ms, b.burst, b.keyed, b.by_operator, b.reason, b.since, b.set_by,
  case when b.starts is not null then least(250, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 20) end as within_ms
from queue.bound b
where b.by_operator or not exists (select from queue.bound o where o.name = b.name and o.by_operator);

-- The same, but for the figures of limits by key, which are those of each line.
create view queue.bound_in_all as
select b.gate, b.number, b.keyed, b.within_ms, f.concurrency, f.starts, f.period_ms, f.burst
from queue.bound_in_force b
left join lateral (select b.concurrency, b.starts, b.period_ms, b.burst) f on not b.keyed;

-- Whether a limit covers what is of this queue and stored under this name of its type.
create function queue.covers(name text, queue text, job_type text) returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select covers.name = 'queue:' || covers.queue or covers.name = 'type:' || queue.type_of(covers.job_type)
    or exists (select from queue.bound_type t where t.job_type = queue.type_of(covers.job_type) and t.name = covers.name)
$$;

-- A number for a limit: another one if its lanes change, so that workers say anew that they know them.
create function queue.limit_number(name text, anew boolean) returns bigint
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select max(b.number) from queue.bound b where b.name = limit_number.name and not anew), nextval('queue.pause_seq'))
$$;

-- Makes gates of limits that have none yet. What claims write into those that are there is not waited for; above read committed it is, for there a
-- gate may be seen that somebody has taken away.
create function queue.meet_gates(names text[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into queue.gate (gate)
  select queue.hash(s.name)
  from unnest(meet_gates.names) s (name)
  where current_setting('transaction_isolation') <> 'read committed' or not exists (select from queue.gate g where g.gate = queue.hash(s.name))
  on conflict do nothing;
end
$$;

-- Sets a limit, whatever code says of it, until unset_limit. Null is no bound: of a limit without any, jobs are claimed one statement later, and no
-- more. It takes effect at the commit: the next claim goes by it. What runs goes on, be it more than the limit. keyed:
-- whether its figures are of each line, or of all; null is as before.
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
  perform queue.meet_gates(array[set_limit.name]);
  insert into queue.bound as b (name, by_operator, number, revision, concurrency, starts, period_ms, burst, keyed, reason)
  values (set_limit.name, true, queue.limit_number(set_limit.name, wish <> was), nextval('queue.pause_seq'), set_limit.concurrency, set_limit.starts,
    (extract(epoch from set_limit.period) * 1000)::bigint, set_limit.burst, wish, set_limit.reason)
  on conflict on constraint bound_pkey do update
  set number = excluded.number, keyed = excluded.keyed, revision = excluded.revision, concurrency = excluded.concurrency, starts = excluded.starts,
    period_ms = excluded.period_ms, burst = excluded.burst, reason = excluded.reason, since = excluded.since, set_by = excluded.set_by;
  perform queue.notify('wake', '!control');
end
$$;

-- Takes away what an operator set, so that code's word holds again, if it has one; false if there is nothing of the kind.
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
  perform queue.forget_gates();
  perform queue.notify('wake', '!control');
  return true;
end
$$;

-- What is left of limits that nobody sets any more. Whoever claims under one has it locked: this waits, and that one finds it gone.
create function queue.forget_gates() returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from queue.gate g where not exists (select from queue.bound b where b.gate = g.gate);
  delete from queue.permit h where not exists (select from queue.gate g where g.gate = h.gate);
  delete from queue.rate r where not exists (select from queue.gate g where g.gate = r.gate);
end
$$;

-- What a worker's code says, before its first claim: the limits that it gives, and which of its types name which. What it says no more of its types,
-- and of queues that it names, is forgotten. Workers of two releases may disagree: the one that started last is believed. Whoever says what is known
-- waits for nobody. Returns whether anything changed.
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
  turned   text[];  -- by key from now on, or no more
  moved    text[];
  gone     text[];
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
    select coalesce(array_agg(b.name), '{}') into gone
    from queue.bound b
    where not b.by_operator and b.name <> all (names)
      and (b.name = any (array(select 'type:' || t from unnest(types) t union all select 'queue:' || q from unnest(queues) q))
        or (b.name !~ '^(type|queue):' and b.name = any (moved)
          and not exists (select from queue.bound_type t where t.name = b.name and t.job_type <> all (types))));
    exit when attempt = 2;
    if cardinality(moved) + cardinality(changed) + cardinality(gone) = 0 then
      return false;
    end if;
    lock table queue.paused in share row exclusive mode;
  end loop;
  delete from queue.bound_type t
  where t.job_type = any (types)
    and not exists (select from unnest(of_types, of_names) s (job_type, name) where s.job_type = t.job_type and s.name = t.name);
  insert into queue.bound_type (job_type, name) select s.job_type, s.name from unnest(of_types, of_names) s (job_type, name) on conflict do nothing;
  perform queue.meet_gates(names);
  insert into queue.bound as b (name, by_operator, number, revision, concurrency, starts, period_ms, burst, keyed)
  select s.name, false, queue.limit_number(s.name, s.name = any (moved || turned)), nextval('queue.pause_seq'), s.concurrency, s.starts, s.period_ms,
    s.burst, s.keyed
  from unnest(names, concurrencies, declare_limits.starts, periods_ms, bursts, keyeds) s (name, concurrency, starts, period_ms, burst, keyed)
  where s.name = any (changed)
  on conflict on constraint bound_pkey do update
  set number = excluded.number, keyed = excluded.keyed, revision = excluded.revision, concurrency = excluded.concurrency, starts = excluded.starts,
    period_ms = excluded.period_ms, burst = excluded.burst, since = excluded.since, set_by = excluded.set_by;
  -- Lanes have come to it, or left it.
  update queue.bound b set number = nextval('queue.pause_seq'), revision = nextval('queue.pause_seq') where b.name = any (moved);
  delete from queue.bound b where b.name = any (gone) and not b.by_operator;
  perform queue.forget_gates();
  perform queue.notify('wake', '!control');
  return true;
end
$$;

-- The limits, by name: what is in force, who said so, and what code says where an operator said something else; how many permits are held, and how
-- many ready jobs wait in lanes that it covers, counted up to most; if a time must come before the next one begins, in how many ms; and how many
-- workers do not know yet which lanes it covers, for whom it waits. A door, for it asks leases by their tokens.
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
  -- From the lanes to the limits that cover them, by name: see queue.covers.
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
    (select coalesce(sum(least(h.n, cardinality(l.ids))), 0) from queue.permit h join queue.lease l on l.token = h.token where h.gate = b.gate),
    least(w.jobs, most), w.jobs > most,
    (select max(r.wait_ms) from queue.room(array[b.gate], null) r where r.free <= 0),
    (select count(*) from queue.limit_awaits(b.number) where g.adopted < b.number)
  from queue.bound_in_force b
  join queue.gate g on g.gate = b.gate
  left join queue.bound c on c.name = b.name and not c.by_operator
  cross join lateral (
    select count(*) as jobs
    from (
      select
      from (select e.lane from covered e where e.name = b.name) l
      -- From behind: in front there are dead entries.
      cross join lateral (select from queue.ready r where r.lane = l.lane order by r.seq desc limit most + 1) r
      limit most + 1
    ) w
  ) w
  order by b.name;
end
$$;
