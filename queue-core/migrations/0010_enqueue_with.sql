-- The enqueue that says more than queue.enqueue: with an ordering key, a uniqueness key, or into a queue that may be full.

-- Enqueues one job in the caller's transaction, unless its uniqueness key is held: for every language alike. With an ordering key (key), see
-- queue.enqueue_in_line, jobs of that key run one at a time in the order of their commits. Returns the job's id, and what came of it:
-- enqueued, kept (the job that holds the key, as it is), replaced (it has this payload now) or debounced (it runs at this run_at, if that is
-- later). A job that runs is always kept. unique_while says how long the key of a new job is held: live (until the job is over), queued (while
-- it waits and no worker has claimed it), or an interval from now, such as '1 hour'.
create function queue.enqueue_with(
  job_type      text,
  payload       jsonb,
  queue         text        default 'default',
  priority      smallint    default 100,
  max_attempts  smallint    default 20,
  run_at        timestamptz default null,
  key           text        default null,
  key_policy    text        default 'block',
  unique_key    text        default null,
  unique_while  text        default 'live',
  on_conflict   text        default 'keep',
  out id        bigint,
  out outcome   text
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  taken   uuid := queue.unique_hash(enqueue_with.queue, enqueue_with.job_type, enqueue_with.unique_key);
  held_as text := case when unique_while in ('live', 'queued') then unique_while else 'until' end;
  moment  timestamptz := clock_timestamp();
  held_to timestamptz;
begin
  if on_conflict is null or on_conflict not in ('keep', 'replace', 'debounce') then
    raise invalid_parameter_value using message = 'queue.enqueue_with: on_conflict is keep, replace or debounce';
  end if;
  if held_as = 'until' then
    held_to := moment + unique_while::interval;
    if held_to is null or held_to <= moment then
      raise invalid_parameter_value using message = 'queue.enqueue_with: unique_while is live, queued or an interval longer than zero';
    end if;
  end if;
  if taken is not null then
    select t.id, t.outcome into enqueue_with.id, enqueue_with.outcome
    from queue.take_key(taken, enqueue_with.payload, enqueue_with.run_at, enqueue_with.on_conflict) t;
    if enqueue_with.id is not null then
      -- Workers that passed over the entry while it was locked here, or that do not know its new time, are told.
      perform queue.wake(enqueue_with.queue);
      return;
    end if;
  end if;
  if enqueue_with.key is null then
    id := queue.enqueue(enqueue_with.job_type, enqueue_with.payload, enqueue_with.queue, enqueue_with.priority, enqueue_with.max_attempts,
      enqueue_with.run_at);
  else
    id := queue.enqueue_in_line(enqueue_with.job_type, enqueue_with.payload, enqueue_with.queue, enqueue_with.priority,
      enqueue_with.max_attempts, enqueue_with.run_at, enqueue_with.key, enqueue_with.key_policy);
    perform queue.take_room(enqueue_with.queue, 1);
  end if;
  outcome := 'enqueued';
  if taken is not null then
    update queue.unique_key u set id = enqueue_with.id, held = held_as, until = held_to where u.hash = taken;
  end if;
end
$$;

-- As enqueue_with, but if the queue is full it enqueues nothing, returns null and 'full', and leaves the transaction as it was.
create function queue.try_enqueue(
  job_type      text,
  payload       jsonb,
  queue         text        default 'default',
  priority      smallint    default 100,
  max_attempts  smallint    default 20,
  run_at        timestamptz default null,
  key           text        default null,
  key_policy    text        default 'block',
  unique_key    text        default null,
  unique_while  text        default 'live',
  on_conflict   text        default 'keep',
  out id        bigint,
  out outcome   text
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  select e.id, e.outcome into try_enqueue.id, try_enqueue.outcome
  from queue.enqueue_with(try_enqueue.job_type, try_enqueue.payload, try_enqueue.queue, try_enqueue.priority, try_enqueue.max_attempts,
    try_enqueue.run_at, try_enqueue.key, try_enqueue.key_policy, try_enqueue.unique_key, try_enqueue.unique_while, try_enqueue.on_conflict) e;
exception when sqlstate 'QFULL' then
  id := null;
  outcome := 'full';
end
$$;
