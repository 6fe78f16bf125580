-- Tables of a store. The table that holds a job's entry determines the job's state:
--
--   enqueue -> ready | scheduled      by the producer, in the producer's transaction (queue.insert_job); for blocked, see 3_keys.sql
--   scheduled -> ready                by any worker, once run_at is due (promote)
--   ready -> lease                    by a worker, a batch under one random token (claim)
--   lease -> done | done_many | dead | scheduled | ready
--                                     by the token's holder (settle), or by any worker once the holder's heartbeat has expired (recover)
--   lease -> ready                    by the holder, for a durable job that restarts (restart)
--   lease -> parked                   by the holder, for a durable job that is waiting for a signal (park_held)
--   ready -> parked                   by the producer, in its transaction, for a flow node that is waiting for other nodes (link_flow)
--   parked -> ready                   by any worker, once a signal has arrived (wake_parked), the wake-up time is due (promote),
--                                     or the node's sources have finished (release_nodes)
--   dead | done -> ready              by an operator (requeue)
--
-- Every id in job has exactly one entry in ready, scheduled, blocked, parked, lease, done, done_many or dead. Rows of ready, scheduled,
-- parked and done are inserted and deleted but never updated, so index entries never move.

create sequence queue.id_seq;

-- Returns a new job id. The high bits contain the clock's milliseconds, and the low 20 bits contain a sequence number. Ids sort by
-- enqueue time, and a range of ids is a time range. Therefore no table stores enqueue times.
create function queue.next_id() returns bigint
  language sql volatile
  return ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint << 20)
    | (pg_catalog.nextval('queue.id_seq'::regclass) & 1048575);

-- Returns the lowest id that could have been allocated at `moment`.
create function queue.id_at(moment timestamptz) returns bigint
  language sql immutable strict parallel safe
  return (pg_catalog.date_part('epoch', moment) * 1000)::bigint << 20;

create function queue.enqueued_at(id bigint) returns timestamptz
  language sql immutable strict parallel safe
  return pg_catalog.to_timestamp((id >> 20) / 1000.0);

create function queue.is_name(name text) returns boolean
  language sql immutable parallel safe
  return name is not null and name ~ '^[A-Za-z0-9_.:-]{1,64}$';

-- Returns the name under which jobs of a type are stored. From payload version 2 on, the name consists of the type's name, `@` and the
-- version. Each version therefore has its own lanes, and only workers that support the version serve these lanes.
create function queue.stored_type(job_type text, version integer) returns text
  language sql immutable parallel safe
  return case when version > 1 then job_type || '@' || version::text else job_type end;

-- Returns the job type's name, given the stored name, which may end with a payload version.
create function queue.type_of(stored text) returns text
  language sql immutable strict parallel safe
  return pg_catalog.split_part(stored, '@', 1);

-- Returns the SHA-256 of the text's bytes. The bytes are not converted to another encoding, because a conversion would prevent inlining.
create function queue.digest(text text) returns bytea
  language sql immutable strict parallel safe
  return pg_catalog.sha256(pg_catalog.decode(pg_catalog.replace(text, E'\\', E'\\\\'), 'escape'));

-- Returns the first eight bytes of the text's SHA-256 as an integer.
create function queue.hash(text text) returns bigint
  language sql immutable strict parallel safe
  return ('x' || pg_catalog.left(pg_catalog.encode(queue.digest(text), 'hex'), 16))::bit(64)::bigint;

-- Returns a lane's id, which is a hash of the lane's properties. Unlike an allocated number, a hash lets a producer insert a new lane
-- without a lookup and without waiting for another producer's commit. A rollback does not affect other producers.
create function queue.lane_id(queue text, job_type text, priority integer, solo boolean) returns bigint
  language sql immutable strict parallel safe
  return queue.hash(queue || '/' || job_type || '/' || priority::text || '/' || solo::text);

-- Returns the paired lane: the fair lane of a plain lane, or the plain lane of a fair lane. Only fair lanes queue their jobs by fairness
-- key (16_fair_queues.sql).
create function queue.paired_lane(lane bigint) returns bigint
  language sql immutable strict parallel safe
  return lane # 6148914691236517205;

-- Lanes, each a combination of queue, job type and priority. Producers that create the same lane concurrently may each write an identical
-- row, and readers use any of the identical rows.
--
-- A row older than the history retention is deleted in steps. leave_lanes marks the row as leaving, which hides the row from producers.
-- The next enqueue into the lane then writes a new row. Once every transaction sees the mark (pass_lanes), the row is deleted if the lane
-- has a new row (replaced_lanes) or no jobs (forget_lanes). These steps add no cost to an enqueue and block no session.
create table queue.lane (
  lane      bigint   not null,
  queue     text     not null,
  job_type  text     not null,                               -- stored name, see queue.stored_type
  priority  smallint not null,
  solo      boolean  not null,                               -- whether the lane is a quarantine lane, for jobs that crashed a process (recover.sql)
  paired    boolean  not null default false,                 -- whether the lane is a fair lane, see 16_fair_queues.sql
  born      xid8     not null default pg_current_xact_id(),  -- transaction that wrote the row; workers load lanes newer than their last query
  -- Whether an enqueue into the lane has to check the queue's capacity; null if the lane is leaving. True for every lane of a queue with
  -- a capacity. An unnecessary true only costs the check. The enqueue reads the lane's row anyway, whereas a capacity check on every
  -- enqueue would add 10 % to its cost.
  has_capacity  boolean  default false,
  since    timestamptz not null default now(),  -- insertion time; if leaving, time of the mark or of the last scan that found jobs
  leaving  xid8,                                -- transaction that marked the row as leaving; null: not leaving
  passed   xid8,                                -- transaction id newer than all transactions that may see the row unmarked
  above    bigint,                              -- upper bound of the ids of jobs enqueued with the row; null until known
  walked   bigint   not null default 0,         -- scan position: the lane has no jobs with ids up to this value
  constraint lane_since_in_range check (since >= '1970-01-01+00' and since < '10000-01-01+00'),
  constraint lane_is_seen_or_leaving check ((leaving is null) = (has_capacity is not null)),
  constraint lane_queue_is_a_name check (queue.is_name(queue)),
  constraint lane_job_type_is_a_name
    check (job_type ~ '^[A-Za-z0-9_.:-]{1,64}(@([2-9]|[1-9][0-9]{1,3}))?$'),
  constraint lane_is_its_hash check (queue.lane_id(queue, job_type, priority, solo) = case when paired then queue.paired_lane(lane) else lane end),
  constraint lane_is_paired_or_solo check (not (paired and solo))
);
create index lane_by_id on queue.lane (lane);
create index lane_by_birth on queue.lane (born);
create index lane_by_queue on queue.lane (queue);

-- Enqueued jobs, partitioned by day. A ninth column would add eight bytes to the header of each row, so the store keeps optional
-- attributes in `system`:
--   child_of | node_of | part_of   the job or flow that waits for this job to finish
--   expires_at                     start deadline, see queue.expiry_text
--   skips                          whether the ordering key continues without the job once the job is dead
--   unique                         queue.unique_hash of the job's uniqueness key
--   schedule, tick                 the schedule and the tick that enqueued the job
--
-- The table has no CHECK constraints, because PostgreSQL would prepare them again for every statement. This would take 12 us of the 46 us
-- for an enqueue. Instead, the enqueue functions and the bulk path validate the values.
create table queue.job (
  id            bigint   not null,
  lane          bigint   not null,
  max_attempts  smallint not null,
  payload       jsonb    not null,
  key           bigint,    -- queue.key_id; null: no ordering key
  meta          jsonb,     -- metadata from the producer, an object of at most queue.meta_limit() bytes; null: none
  system        jsonb,     -- object with the attributes listed above; null: none
  fair_id       bigint,    -- hash of the fairness key (queue.fair_id_of); null: none
  constraint job_pkey primary key (id)
) partition by range (id);

-- Jobs ready to be claimed. The table is small, because a claim deletes the entries. `seq` is the position of an entry in its lane. A new
-- entry usually goes to the end of the lane. The position of a released job is its id, which usually restores its earlier position.
-- Entries of fair lanes also have a `fair_id`, the hash of the fairness key.
create table queue.ready (
  lane      bigint   not null,
  seq       bigint   not null,
  id        bigint   not null,
  attempts  smallint not null default 0,
  crashes   smallint not null default 0,
  fair_id   bigint,
  constraint ready_claim primary key (lane, seq)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_cost_delay = 0
);
-- Entries whose position differs from the job's id: jobs that entered ready again, and jobs of fair lanes. The index omits all other
-- entries, because the primary key finds them by lane and position.
create index ready_moved on queue.ready (id) where seq <> id;
-- Entries of fair lanes by fair queue and position. Entries of other lanes are not indexed.
create index ready_fair on queue.ready (lane, fair_id, seq) where fair_id is not null;

-- Jobs that are waiting for their run time: delayed jobs, retries and snoozed jobs.
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
create index scheduled_by_lane on queue.scheduled (lane);  -- for counts of the waiting jobs of a queue

-- Leased jobs, one row per claimed batch. `ids` are the jobs that are not settled yet. Settling the last job deletes the row.
create table queue.lease (
  token       uuid        not null,
  worker      uuid        not null,
  claimed_at  timestamptz not null default now(),
  lane        bigint,                 -- lane of all jobs in the lease; null if they differ
  ids         bigint[]    not null,
  attempts    smallint[]  not null,   -- attempt numbers of the jobs, including the current attempt
  crashes     smallint[]  not null,
  -- Running jobs with a pending cancellation. A transaction that ends such a job locks the lease row, and therefore sees the cancellation.
  cancelling  bigint[],
  constraint lease_claimed_at_in_range check (claimed_at >= '1970-01-01+00' and claimed_at < '10000-01-01+00'),
  constraint lease_pkey primary key (token),
  constraint lease_holds_something check (cardinality(ids) > 0),
  constraint lease_arrays_match check (cardinality(ids) = cardinality(attempts) and cardinality(ids) = cardinality(crashes))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
alter table queue.lease
  alter ids set storage external, alter attempts set storage external, alter crashes set storage external;

-- Heartbeats of workers, one row per process. Once a heartbeat has expired, other workers may recover the worker's leases.
create table queue.worker (
  id          uuid        not null,
  expires_at  timestamptz not null,
  started_at  timestamptz not null default now(),
  name        text        not null,
  host        text        not null,
  pid         integer     not null,
  version     text        not null,
  queues      text[]      not null,
  types       text[],     -- job types that the worker can run, including aliases; null: not reported
  ttl         interval    not null default '30 s',  -- validity period of a heartbeat
  paused_seen bigint      not null default 0,  -- highest pause that the worker has acknowledged, see 12_pauses.sql
  declares    bigint[],   -- definitions of the schedules that the worker declares
  busy        integer,    -- number of busy slots at the last heartbeat, out of `slots`; null: not reported
  slots       integer,
  memory      bigint,     -- process memory in bytes at the last heartbeat; null if the system does not report it
  constraint worker_pkey primary key (id),
  constraint worker_times_in_range check (least(started_at, expires_at) >= '1970-01-01+00' and greatest(started_at, expires_at) < '10000-01-01+00')
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Finished jobs with details: an output, several attempts, a cancellation or an expiry. Partitioned by the day in the id.
create table queue.done (
  id           bigint      not null,
  finished_at  timestamptz not null,
  ran_ms       integer     not null,
  attempts     smallint    not null,
  cancelled    boolean     not null default false,  -- whether the job finished without completing (cancelled or expired)
  expired      boolean     not null default false,  -- whether the job finished because no attempt started in time
  output       jsonb,
  constraint done_finished_at_in_range check (finished_at >= '1970-01-01+00' and finished_at < '10000-01-01+00'),
  constraint done_pkey primary key (id),
  constraint done_cancelled_has_no_output check (case when cancelled then output is null else not expired end)
) partition by range (id);

-- Jobs that succeeded on their first attempt without an output. Most jobs are of this kind. One row contains jobs that were settled
-- together and enqueued close together. The ids of a row span at most 2^33 (about 8 s) and one day, so a lookup by id searches few rows.
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
alter table queue.done_many alter ids set storage external;  -- a settle would spend more time on compression than the smaller size saves
create index done_many_by_id on queue.done_many (first_id, last_id);

-- Dead letters, which are not retried automatically. An operator requeues or discards them.
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

-- Errors of failed attempts. Partitioned by the day in the id.
create table queue.failure (
  id       bigint      not null,
  attempt  smallint    not null,
  at       timestamptz not null,
  ran_ms   integer     not null,
  error    text        not null,
  constraint failure_at_in_range check (at >= '1970-01-01+00' and at < '10000-01-01+00')
) partition by range (id);
create index failure_by_id on queue.failure (id);

-- Idle workers that wait for a notification, one row per worker and queue; '*' stands for any queue.
create table queue.idle (
  queue   text not null,
  worker  uuid not null,
  constraint idle_pkey primary key (queue, worker)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Default partitions, for rows whose day has no partition and rows that are retained after the partition of their day is dropped.
create table queue.job_default partition of queue.job default;
create table queue.done_default partition of queue.done default;
create table queue.done_many_default partition of queue.done_many default;
create table queue.failure_default partition of queue.failure default;

-- Replica identities of tables without a primary key. Without a replica identity, PostgreSQL rejects every statement that could delete
-- from a published table. The identity adds writes only with logical replication, and rows of such tables are rarely deleted
-- individually. Each partition needs a separate identity.
alter table queue.lane replica identity full;
alter table queue.done_many replica identity full;
alter table queue.done_many_default replica identity full;
alter table queue.failure replica identity full;
alter table queue.failure_default replica identity full;

-- Secret part of channel names and advisory lock numbers. Any role that may connect can notify a channel by its name, and take an
-- advisory lock by its number. Only the owner has privileges on the table. No function body contains the secret, because all roles can
-- read function bodies.
create table queue.secret (
  one    boolean  not null default true,
  wake   text     not null default 'wake_' || replace(gen_random_uuid()::text, '-', ''),  -- channel that wakes idle workers
  over   text     not null default 'over_' || replace(gen_random_uuid()::text, '-', ''),  -- channel for job-finished notifications
  marks  text     not null default replace(gen_random_uuid()::text, '-', ''),             -- secret for advisory lock numbers, see queue.capacity_mark
  constraint secret_pkey primary key (one),
  constraint secret_is_one check (one)
);
insert into queue.secret default values;

-- Returns the name of the notification channel for `purpose` ('wake' or 'over'). Called by roles that listen on the channel. SECURITY
-- DEFINER entry point, see 11_doors.sql.
create function queue.channel(purpose text) returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (select case purpose when 'wake' then s.wake when 'over' then s.over end from queue.secret s);
end
$$;

-- Sends a notification when the transaction commits. The payload must not be secret, because every role that knows the channel name can
-- listen. PostgreSQL refuses to prepare a transaction that has sent a notification. Therefore a transaction that will be prepared turns
-- queue_transaction.notify off, and this function then sends nothing. SECURITY DEFINER entry point, see 11_doors.sql.
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

-- Wakes idle workers that serve the queue. Sends nothing if no worker is idle, because NOTIFY serializes commits. The call must be
-- the transaction's last statement. A worker whose idle row is not visible yet needs no notification: the worker waits until the
-- producer's transaction has ended, and then queries for jobs with a new snapshot.
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

-- Type of the argument that passes the calling role's name to a SECURITY DEFINER entry point. Within the entry point, current_user is the
-- owner, so the argument's default computes the name with the caller's rights. Once any producer is restricted to a list of queues, only
-- the caller's own name is valid (roles/some_queues.sql). Until then the argument is null and costs nothing.
create domain queue.caller as name;
create function queue.called_by() returns name
  language sql immutable
  return null::name;

-- Enqueues one job in the caller's transaction, and returns the job's id. The job has no ordering key. The function is the fast path of
-- queue.enqueue, and a SECURITY DEFINER entry point, see 11_doors.sql.
--
-- The function runs under the caller's search_path, because setting a search_path would add 4 % to the cost. Therefore every name in the
-- body is schema-qualified, including operators. The called functions set their own search_path or were bound at creation.
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
  -- Reads has_capacity and inserts the row in one statement, because a separate query would add 5 % to the cost of an enqueue. The
  -- capacity itself is checked before any row is written.
  insert into queue.job (id, lane, max_attempts, payload, meta)
  select new_id, new_lane, insert_job.max_attempts, insert_job.payload, insert_job.meta
  where not (select l.has_capacity from queue.lane l where l.lane operator(pg_catalog.=) new_lane and l.has_capacity is not null limit 1);
  if not found then
    perform queue.take_capacity(insert_job.queue, 1);
    perform queue.ensure_lane(insert_job.queue, insert_job.job_type, insert_job.priority, false);
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
  -- Under a snapshot older than the current statement, an idle worker may be invisible. The notification is then always sent.
  if sleeper or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text then
    -- Inlines queue.notify, because calling the function would add a third to the cost of the enqueue.
    perform pg_catalog.pg_notify(s.wake, insert_job.queue)
    from queue.secret s
    where coalesce(pg_catalog.current_setting('queue_transaction.notify', true), '') operator(pg_catalog.<>) 'off'::pg_catalog.text;
  end if;
  return new_id;
end
$$;
