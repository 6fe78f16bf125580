-- Pauses. A pause covers lanes, and workers start no job of a covered lane until the pause ends. Enqueues, claims and verdicts do not
-- read the pauses: each worker loads them and skips the covered lanes. During a pause, jobs stay ready and running jobs continue.
--
--   paused  written by operators (pause, resume)
--
-- A worker records in its own row (worker.paused_seen) the highest pause number that it respects. Pauses must therefore become visible in
-- the order of their numbers. To ensure this order, a transaction that pauses jobs holds an exclusive lock until its commit.

create sequence queue.pause_seq;

-- Pauses in force. A pause covers a queue, a job type, a job type in a queue, or all jobs. '*' stands for any queue or type.
create table queue.paused (
  queue      text         not null,
  job_type   text         not null,
  id         bigint       not null,
  reason     text,
  paused_at  timestamptz  not null default now(),
  paused_by  text         not null default session_user,
  constraint paused_at_in_range check (paused_at >= '1970-01-01+00' and paused_at < '10000-01-01+00'),
  constraint paused_pkey primary key (queue, job_type),
  constraint paused_queue_is_a_name check (queue = '*' or queue.is_name(queue)),
  constraint paused_type_is_a_name check (job_type = '*' or queue.is_name(job_type)),
  constraint paused_reason_is_short check (length(reason) <= 1000)
);

-- Pauses a queue ('*': all queues), or one job type in the queue, and returns the pause's number. An existing pause gets a new number,
-- reason and author, but keeps its start time.
--
-- The pause takes effect at commit, when workers are notified. Running jobs run to completion. pause_awaits returns the workers that may
-- still start jobs covered by the pause.
create function queue.pause(queue text, job_type text default '*', reason text default null) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
declare
  number bigint;
begin
  lock table queue.paused in share row exclusive mode;
  insert into queue.paused as p (queue, job_type, id, reason)
  values (pause.queue, pause.job_type, nextval('queue.pause_seq'), pause.reason)
  on conflict on constraint paused_pkey do update
  set id = excluded.id, reason = excluded.reason, paused_by = excluded.paused_by
  returning p.id into number;
  perform queue.notify('wake', '!control');
  return number;
end
$$;

-- Ends the pause with exactly this queue and job type. Returns false if the pause does not exist. Jobs covered by another pause stay
-- paused.
create function queue.resume(queue text, job_type text default '*') returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '5s'
as $$
begin
  delete from queue.paused p
  where p.queue = resume.queue
    and p.job_type = resume.job_type;
  if not found then
    return false;
  end if;
  perform queue.notify('wake', '!control');
  return true;
end
$$;

-- Returns the live workers that could run paused jobs and have not acknowledged the pause. Once the result is empty, no handler of a
-- paused job starts until the pause ends. Workers with an expired heartbeat are excluded, because they start no jobs, and load the
-- pauses before their next claim.
create function queue.pause_awaits(queue text, job_type text default '*')
  returns table (id uuid, name text, host text, pid integer)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select w.id, w.name, w.host, w.pid
  from queue.paused p
  join queue.worker w on w.paused_seen < p.id
  where p.queue = pause_awaits.queue and p.job_type = pause_awaits.job_type
    and w.expires_at > now()
    and (p.queue = '*' or cardinality(w.queues) = 0 or p.queue = any (w.queues))
    and (p.job_type = '*' or w.types is null or p.job_type = any (w.types))
  order by w.name, w.id;
end
$$;

-- Returns the pauses, oldest first. Each row also contains the number of ready jobs that the pause covers, counted up to `most` (null:
-- all), and the number of workers that have not acknowledged the pause (pause_awaits).
create function queue.pauses(most integer default 10000)
  returns table (
    id bigint, queue text, job_type text, reason text, paused_at timestamptz, paused_by text, ready bigint, partial boolean, awaits bigint
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  if most < 0 then
    raise invalid_parameter_value using message = format('queue.pauses: most must be a number from 0 on, or null for all jobs, not %s', most);
  elsif most > 1000000000 then
    most := 1000000000;
  end if;
  return query
  select p.id, p.queue, p.job_type, p.reason, p.paused_at, p.paused_by, least(c.jobs, most), coalesce(c.jobs > most, false),
    (select count(*) from queue.pause_awaits(p.queue, p.job_type))
  from queue.paused p
  cross join lateral (
    select count(*) as jobs
    from (
      select
      from (
        select distinct l.lane
        from queue.lane l
        where (p.queue = '*' or l.queue = p.queue) and (p.job_type = '*' or queue.type_of(l.job_type) = p.job_type)
      ) l
      -- The index is read from the end, because dead entries accumulate at the front.
      cross join lateral (select from queue.ready r where r.lane = l.lane order by r.seq desc limit most + 1) r
      limit most + 1
    ) w
  ) c
  order by p.paused_at, p.id;
end
$$;
