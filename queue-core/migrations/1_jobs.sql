-- The tables of a store. A job's state is the table that holds its entry:
--
--   enqueue -> ready | scheduled      by the producer, in its own transaction (queue.insert_job), or blocked: see 3_keys.sql
--   scheduled -> ready                by any worker, once run_at has come (promote)
--   ready -> lease                    by a worker, a batch under one random token (claim)
--   lease -> done | done_many | dead | scheduled | ready
--                                     by the holder of the token (settle), or by any worker once the holder is silent (recover)
--   lease -> ready                    by the holder, of a durable job that begins anew (restart)
--   lease -> parked                   by the holder, of a durable job that waits for a signal (park_held)
--   ready -> parked                   by the producer, in its own transaction, of a node of a flow that waits for others (link_flow)
--   parked -> ready                   by any worker, once it has a signal (wake_parked), its time has come (promote) or those before it are over
--                                     (release_nodes)
--   dead | done -> ready              by an operator (requeue)
--
-- Every id in job has exactly one entry in ready, scheduled, blocked, parked, one lease, done, done_many or dead. Rows of ready, scheduled, parked
-- and done are inserted and deleted, never updated, so that no index entry moves.

create sequence queue.id_seq;

-- Milliseconds of the clock in the high bits, 20 bits of a sequence in the low: ids sort by age, a range of ids is a range of time, and
-- no table stores when a job was enqueued.
create function queue.next_id() returns bigint
  language sql volatile
  return ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint << 20)
    | (pg_catalog.nextval('queue.id_seq'::regclass) & 1048575);

-- The lowest id that could have been given out at that time.
create function queue.id_at(moment timestamptz) returns bigint
  language sql immutable strict parallel safe
  return (pg_catalog.date_part('epoch', moment) * 1000)::bigint << 20;

create function queue.enqueued_at(id bigint) returns timestamptz
  language sql immutable strict parallel safe
  return pg_catalog.to_timestamp((id >> 20) / 1000.0);

create function queue.is_name(name text) returns boolean
  language sql immutable parallel safe
  return name is not null and name ~ '^[A-Za-z0-9_.:-]{1,64}$';

-- The name under which jobs of a type are stored: the type's, and behind it the version of their payloads, from the second on. So another version
-- is another lane, which only workers that know it serve, and jobs of the first know nothing of versions.
create function queue.stored_type(job_type text, version integer) returns text
  language sql immutable parallel safe
  return case when version > 1 then job_type || '@' || version::text else job_type end;

-- Of that name the type's.
create function queue.type_of(stored text) returns text
  language sql immutable strict parallel safe
  return pg_catalog.split_part(stored, '@', 1);

-- A text's sha256. The bytes are taken as they are: a conversion to another encoding would keep this from being inlined.
create function queue.digest(text text) returns bytea
  language sql immutable strict parallel safe
  return pg_catalog.sha256(pg_catalog.decode(pg_catalog.replace(text, E'\\', E'\\\\'), 'escape'));

-- The first eight bytes of it, as a number.
create function queue.hash(text text) returns bigint
  language sql immutable strict parallel safe
  return ('x' || pg_catalog.left(pg_catalog.encode(queue.digest(text), 'hex'), 16))::bit(64)::bigint;

-- A lane's id is a hash of its name, not a number given out: a producer that meets a new lane inserts it without asking anybody, its
-- rollback takes nothing from the others, and no producer waits for another's commit.
create function queue.lane_id(queue text, job_type text, priority integer, solo boolean) returns bigint
  language sql immutable strict parallel safe
  return queue.hash(queue || '/' || job_type || '/' || priority::text || '/' || solo::text);

-- The lined twin of a plain lane, in which its jobs stand in lines (16_lines.sql), and the plain lane of a lined one.
create function queue.twin_of(lane bigint) returns bigint
  language sql immutable strict parallel safe
  return lane # 6148914691236517205;

-- The dictionary of lanes. Producers that meet a lane at the same time write its row more than once, all the same; readers take any.
--
-- A row that is leaving is one that producers see no more: whoever enqueues into its lane writes a new row. So it goes once nobody is left who
-- may have seen it otherwise, and either there is such a new row or no job of its lane (leave_lanes, pass_lanes, forget_lanes). It costs an
-- enqueue nothing, and nobody waits.
create table queue.lane (
  lane      bigint   not null,
  queue     text     not null,
  job_type  text     not null,                               -- as stored: see queue.stored_type
  priority  smallint not null,
  solo      boolean  not null,                               -- jobs under suspicion of ending their process: claimed one at a time
  lined     boolean  not null default false,                 -- its jobs stand in lines, which are served in turn: see 16_lines.sql
  born      xid8     not null default pg_current_xact_id(),  -- workers ask for what was born since they last looked
  -- Whether an enqueue into this lane has to ask for the capacity of its queue: it looks at this row anyway, and asking every time would be a
  -- tenth of its cost. True of every lane of a queue with a capacity; elsewhere it may be, and does no harm. Null of one that is leaving.
  has_capacity  boolean  default false,
  since    timestamptz not null default now(),  -- when it was met; of one that is leaving, since when nobody used it
  leaving  xid8,                                -- the transaction from which on producers do not see it
  passed   xid8,                                -- later than all transactions that may have seen it otherwise, but for their end
  above    bigint,                              -- once these have ended: no job of it that nobody sees has an id above this
  walked   bigint   not null default 0,         -- up to this id no job was of it
  constraint lane_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint lane_is_seen_or_leaving check ((leaving is null) = (has_capacity is not null)),
  constraint lane_queue_is_a_name check (queue.is_name(queue)),
  constraint lane_job_type_is_a_name
    check (job_type ~ '^[A-Za-z0-9_.:-]{1,64}(@([2-9]|[1-9][0-9]{1,3}))?$'),
  constraint lane_is_its_hash check (queue.lane_id(queue, job_type, priority, solo) = case when lined then queue.twin_of(lane) else lane end),
  constraint lane_is_lined_or_solo check (not (lined and solo))
);
create index lane_by_id on queue.lane (lane);
create index lane_by_birth on queue.lane (born);
create index lane_by_queue on queue.lane (queue);

-- What was enqueued; a day a partition. A ninth column would cost each row eight bytes: optional attributes that the store keeps are in `system`.
--   child_of | node_of | part_of   which job or flow waits for its end
--   expires_at                     when it is not to begin any more: queue.expiry_text
--   skips                          its ordering key goes on without it once it is dead
--   unique                         queue.unique_hash of its uniqueness key
--   schedule, tick                 the schedule and the tick that enqueued it
--
-- Rules are kept by the functions that enqueue and by the bulk path, not by CHECKs: those are prepared anew for every statement, which made 12 of
-- the 46 us of an enqueue.
create table queue.job (
  id            bigint   not null,
  lane          bigint   not null,
  max_attempts  smallint not null,
  payload       jsonb    not null,
  key           bigint,    -- queue.key_id, or null: the job waits for no other
  meta          jsonb,     -- an object of at most queue.meta_limit() bytes, or null: the user's
  system        jsonb,     -- an object with the keys above, or null
  line          bigint,    -- queue.line_id of its fair key, or null: it has none
  constraint job_pkey primary key (id)
) partition by range (id);

-- Who waits now. Tiny: a claim deletes. seq is the place in the lane, taken anew on every entry, so it only grows. In a lined lane every entry has a
-- line, and in no other.
create table queue.ready (
  lane      bigint   not null,
  seq       bigint   not null,
  id        bigint   not null,
  attempts  smallint not null default 0,
  crashes   smallint not null default 0,
  line      bigint,
  constraint ready_claim primary key (lane, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);
-- Jobs that have entered ready a second time, so that their place is not their id. A first entry, which is nearly every one, is not in it.
create index ready_moved on queue.ready (id) where seq <> id;
-- The lines of lined lanes, each in the order of places. A job that stands in none is not in it.
create index ready_lines on queue.ready (lane, line, seq) where line is not null;

-- Who waits for a time: delayed jobs, retries, snoozes.
create table queue.scheduled (
  run_at    timestamptz not null,
  id        bigint      not null,
  lane      bigint      not null,
  attempts  smallint    not null default 0,
  crashes   smallint    not null default 0,
  constraint scheduled_due primary key (run_at, id),
  constraint scheduled_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0
);
create index scheduled_by_id on queue.scheduled (id);
create index scheduled_by_lane on queue.scheduled (lane);  -- to count what waits in a queue

-- What a worker holds: one row a claimed batch. ids are those not settled yet; the row goes with the last of them.
create table queue.lease (
  token       uuid        not null,
  worker      uuid        not null,
  claimed_at  timestamptz not null default now(),
  lane        bigint,                 -- of all its jobs, if it is one
  ids         bigint[]    not null,
  attempts    smallint[]  not null,   -- this attempt included
  crashes     smallint[]  not null,
  -- Jobs that somebody wants cancelled while they run. Whoever ends such a job holds this row, and so sees it.
  cancelling  bigint[],
  constraint lease_claimed_at_in_range check (claimed_at >= '1970-01-01+00' and claimed_at < '10000-01-01+00'),
  constraint lease_pkey primary key (token),
  constraint lease_holds_something check (cardinality(ids) > 0),
  constraint lease_arrays_match check (cardinality(ids) = cardinality(attempts) and cardinality(ids) = cardinality(crashes))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table queue.lease
  alter ids set storage external, alter attempts set storage external, alter crashes set storage external;

-- One heartbeat row a process. A worker whose row has expired is silent: others may take its leases.
create table queue.worker (
  id          uuid        not null,
  expires_at  timestamptz not null,
  started_at  timestamptz not null default now(),
  name        text        not null,
  host        text        not null,
  pid         integer     not null,
  version     text        not null,
  queues      text[]      not null,
  types       text[],     -- the job types that it can run, aliases included; null if it did not say
  ttl         interval    not null default '30 s',  -- how long a heartbeat lasts
  paused_seen bigint      not null default 0,  -- of what the pauses up to this number cover, nothing begins here; see 12_pauses.sql
  declares    bigint[],   -- the definitions of the schedules that it declares
  busy        integer,    -- how many of its slots ran something at its last heartbeat, of so many; null if it did not say
  slots       integer,
  memory      bigint,     -- how many bytes of memory its process had then; null if the system does not tell
  constraint worker_pkey primary key (id),
  constraint worker_times_in_range check (least(started_at, expires_at) >= '1970-01-01+00' and greatest(started_at, expires_at) < '10000-01-01+00')
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Jobs that are over and have more to say than that: an output, several attempts, a cancellation. By id, so a day a partition.
create table queue.done (
  id           bigint      not null,
  finished_at  timestamptz not null,
  ran_ms       integer     not null,
  attempts     smallint    not null,
  cancelled    boolean     not null default false,  -- over without having completed
  expired      boolean     not null default false,  -- because it had not begun in time
  output       jsonb,
  constraint done_finished_at_in_range check (finished_at >= '1970-01-01+00' and finished_at < '10000-01-01+00'),
  constraint done_pkey primary key (id),
  constraint done_cancelled_has_no_output check (case when cancelled then output is null else not expired end)
) partition by range (id);

-- Jobs that completed at their first attempt without an output, which is most: one row for all of a flush that were enqueued close together.
-- Their ids lie in one span of 2^33 (about 8 s) of one day, so that a job's row is found among few.
create table queue.done_many (
  first_id     bigint      not null,
  last_id      bigint      not null,
  finished_at  timestamptz not null,
  lane         bigint      not null,
  ids          bigint[]    not null,
  constraint done_many_finished_at_in_range check (finished_at >= '1970-01-01+00' and finished_at < '10000-01-01+00'),
  constraint done_many_spans_its_ids check (first_id = ids[1] and last_id = ids[cardinality(ids)]),
  constraint done_many_is_close_together check (first_id >> 33 = last_id >> 33)
) partition by range (first_id);
alter table queue.done_many alter ids set storage external;  -- compressing them costs the settle more than their bytes
create index done_many_by_id on queue.done_many (first_id, last_id);

-- Dead letters: not tried again by themselves, kept until somebody requeues or discards them.
create table queue.dead (
  id        bigint      not null,
  died_at   timestamptz not null,
  lane      bigint      not null,
  attempts  smallint    not null,
  crashes   smallint    not null,
  error     text        not null,
  constraint dead_pkey primary key (id),
  constraint dead_died_at_in_range check (died_at >= '1970-01-01+00' and died_at < '10000-01-01+00')
);
create index dead_by_time on queue.dead (died_at);

-- Why each failed attempt failed. By id, so a day a partition.
create table queue.failure (
  id       bigint      not null,
  attempt  smallint    not null,
  at       timestamptz not null,
  ran_ms   integer     not null,
  error    text        not null,
  constraint failure_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) partition by range (id);
create index failure_by_id on queue.failure (id);

-- Who wants to be woken, and for which queue; '*' is for any.
create table queue.idle (
  queue   text not null,
  worker  uuid not null,
  constraint idle_pkey primary key (queue, worker)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Rows whose day has no partition, and those that outlive it.
create table queue.job_default partition of queue.job default;
create table queue.done_default partition of queue.done default;
create table queue.done_many_default partition of queue.done_many default;
create table queue.failure_default partition of queue.failure default;

-- Tables without a primary key say by whole rows what was updated or deleted, should somebody publish all tables: without an identity, every
-- statement that may delete from them would be refused. Only a logical replication writes more for it, and rows of these are hardly ever
-- deleted one by one. Each partition has its own identity.
alter table queue.lane replica identity full;
alter table queue.done_many replica identity full;
alter table queue.done_many_default replica identity full;
alter table queue.failure replica identity full;
alter table queue.failure_default replica identity full;

-- What nobody may guess: anybody who may connect can notify a channel whose name is known, and take an advisory lock whose number is. So both are
-- made of this. Nobody but the owner is given a right to it, and it stands in no function's body, which all can read.
create table queue.secret (
  one    boolean  not null default true,
  wake   text     not null default 'wake_' || replace(gen_random_uuid()::text, '-', ''),  -- the channel of workers that sleep
  over   text     not null default 'over_' || replace(gen_random_uuid()::text, '-', ''),  -- the channel of those who wait for jobs
  marks  text     not null default replace(gen_random_uuid()::text, '-', ''),             -- see queue.capacity_mark
  constraint secret_pkey primary key (one),
  constraint secret_is_one check (one)
);
insert into queue.secret default values;

-- The name of a channel, for those who listen: 'wake' or 'over'. A door, as in 11_doors.sql.
create function queue.channel(purpose text) returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (select case purpose when 'wake' then s.wake when 'over' then s.over end from queue.secret s);
end
$$;

-- Says something over a channel, at the end of the transaction. Nothing secret: whoever has the name can listen. A door, as in 11_doors.sql.
-- Not in a transaction that is to be prepared, which must not notify: it has set queue_transaction.notify to off.
create function queue.notify(purpose text, payload text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(current_setting('queue_transaction.notify', true), '') <> 'off' then
    perform pg_notify(queue.channel(purpose), payload);
  end if;
end
$$;

-- Wakes workers that sleep and would take a job of this queue; silent when nobody sleeps, because NOTIFY makes commits queue up behind
-- each other. To be called last: whoever commits the idle row after this looked has a snapshot that waits for us.
create function queue.wake(queue text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from queue.idle i where i.queue in (wake.queue, '*')) or current_setting('transaction_isolation') <> 'read committed' then
    perform queue.notify('wake', wake.queue);
  end if;
end
$$;

-- Who calls a door, which cannot see it. A value of this type is made with the caller's rights, and once there is a producer for some queues only
-- the caller's own name is one (roles/some_queues.sql). Until then it is null, and free.
create domain queue.caller as name;
create function queue.called_by() returns name
  language sql immutable
  return null::name;

-- Enqueues one job without an ordering key in the caller's transaction, and returns its id: the fast path of queue.enqueue, and a door, as
-- in 11_doors.sql. It has the owner's rights on its caller's path, for a path of its own would be 4 % of its cost: so everything in it is
-- qualified, operators too, and what it calls has a path of its own, or was bound when it was made.
create function queue.insert_job(
  job_type      text,
  payload       jsonb,
  queue         text        default 'default',
  priority      integer     default 100,
  max_attempts  integer     default 20,
  run_at        timestamptz default null,
  meta          jsonb       default null,
  caller        queue.caller default queue.called_by()
) returns bigint
  language plpgsql volatile security definer
as $$
declare
  new_id   bigint := queue.next_id();
  new_lane bigint := queue.lane_id(insert_job.queue, insert_job.job_type, insert_job.priority, false);
  written  pg_catalog.text := payload::pg_catalog.text;
  bytes    integer := pg_catalog.octet_length(written);
  sleeper  boolean;
begin
  if queue.limits_producers() then
    perform queue.check_queue(insert_job.queue, insert_job.caller);
  end if;
  if new_lane is null or payload is null or max_attempts is null then
    raise null_value_not_allowed using message = 'queue.enqueue: only run_at may be null';
  elsif max_attempts operator(pg_catalog.<) 1 then
    raise check_violation using constraint = 'job_max_attempts_is_positive', message = 'queue.enqueue: max_attempts must be at least 1';
  elsif bytes operator(pg_catalog.>) queue.payload_limit() then
    raise check_violation using constraint = 'job_payload_fits',
      message = pg_catalog.format('queue.enqueue: the payload has %s bytes, the limit is %s; store a reference, not the blob',
        bytes, queue.payload_limit());
  elsif run_at operator(pg_catalog.<) '1970-01-01+00' or run_at operator(pg_catalog.>=) '10000-01-01+00' then
    perform queue.check_run_at(insert_job.run_at);
  end if;
  if queue.may_overflow(written) then
    perform queue.check_numbers(insert_job.payload);
  end if;
  if meta is not null then
    perform queue.checked_meta(insert_job.meta);
  end if;
  -- In one statement, for a look of its own would be a twentieth of an enqueue. A queue that may be full is asked before anything is written.
  insert into queue.job (id, lane, max_attempts, payload, meta)
  select new_id, new_lane, insert_job.max_attempts, insert_job.payload, insert_job.meta
  where not (select l.has_capacity from queue.lane l where l.lane operator(pg_catalog.=) new_lane and l.has_capacity is not null limit 1);
  if not found then
    perform queue.take_capacity(insert_job.queue, 1);
    perform queue.meet_lane(insert_job.queue, insert_job.job_type, insert_job.priority, false);
    new_id := queue.next_id();
    insert into queue.job (id, lane, max_attempts, payload, meta)
    values (new_id, new_lane, insert_job.max_attempts, insert_job.payload, insert_job.meta);
  end if;
  if run_at operator(pg_catalog.>) pg_catalog.clock_timestamp() then
    insert into queue.scheduled (run_at, id, lane) values (insert_job.run_at, new_id, new_lane);
  else
    insert into queue.ready (lane, seq, id) values (new_lane, new_id, new_id);
  end if;
  sleeper := exists (
    select from queue.idle i where i.queue operator(pg_catalog.=) insert_job.queue or i.queue operator(pg_catalog.=) '*'::pg_catalog.text);
  -- Under an older snapshot than this statement's own, a sleeper may be there unseen.
  if sleeper or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text then
    -- As queue.notify, which would be a third of the cost.
    perform pg_catalog.pg_notify(s.wake, insert_job.queue)
    from queue.secret s
    where coalesce(pg_catalog.current_setting('queue_transaction.notify', true), '') operator(pg_catalog.<>) 'off'::pg_catalog.text;
  end if;
  return new_id;
end
$$;
