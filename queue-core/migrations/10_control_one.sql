-- The acts by their names, on many jobs and on one. On many, what cannot be done is passed over. On one it is refused: SQLSTATE P0002 if there is
-- no such job, 55P03 if another transaction has it locked, else 55000; DETAIL is JSON: the job, the state it is in, the states wanted, what cannot be
-- done, and the job that holds its uniqueness key, if that is why.

-- Does an act to those of these jobs to which it can be done now; returns them and what became of them.
create function queue.act_on_all(ids bigint[], act text, run_at timestamptz default null, priority integer default null)
  returns table (id bigint, became text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  changed bigint;
begin
  case act
    when 'cancel' then
      return query select c.id, 'cancelled' from queue.cancel_waiting_all(act_on_all.ids) c (id);
      get diagnostics changed = row_count;
      if changed < cardinality(act_on_all.ids) then
        return query select c.id, 'cancelling' from queue.cancel_running_all(act_on_all.ids) c (id);
      end if;
    when 'reschedule' then
      return query select c.id, 'rescheduled' from queue.reschedule_all(act_on_all.ids, act_on_all.run_at) c (id);
    when 'snooze' then
      return query select c.id, 'snoozed' from queue.reschedule_all(act_on_all.ids, act_on_all.run_at) c (id);
    when 'run_now' then
      return query select c.id, 'ready' from queue.run_now_all(act_on_all.ids) c (id);
    when 'set_priority' then
      return query select c.id, 'changed' from queue.set_priority_all(act_on_all.ids, act_on_all.priority) c (id);
    when 'requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(act_on_all.ids) c (id);
    when 'force_requeue' then
      return query select c.id, 'requeued' from queue.requeue_all(act_on_all.ids, force => true) c (id);
    when 'discard' then
      return query select c.id, 'discarded' from queue.discard_all(act_on_all.ids) c (id);
    else
      raise invalid_parameter_value using message = format('there is no act %s', to_json(act_on_all.act));
  end case;
end
$$;

-- Does an act to one job; returns what became of it. Between two looks a job may pass from one state to another that fits, and what others have
-- locked is passed over: so it tries again, for about half a second.
create function queue.act_on_one(id bigint, act text, run_at timestamptz default null, priority integer default null) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  became  text;
  state   text;
  holder  bigint; -- of its uniqueness key, if that is another job
  give_up timestamptz := clock_timestamp() + interval '500 ms';
  wanted  text[] := case act
    when 'cancel' then '{ready,scheduled,blocked,parked,running}'
    when 'reschedule' then '{ready,scheduled}'
    when 'snooze' then '{ready,scheduled}'
    when 'run_now' then '{scheduled,parked}'
    when 'set_priority' then '{ready,scheduled}'
    when 'requeue' then '{dead,completed,cancelled,expired}'
    when 'force_requeue' then '{dead,completed,cancelled,expired}'
    when 'discard' then '{dead}'
  end;
  done    text := case act
    when 'cancel' then 'cancelled'
    when 'reschedule' then 'rescheduled'
    when 'snooze' then 'snoozed'
    when 'run_now' then 'run now'
    when 'set_priority' then 'given another priority'
    when 'requeue' then 'requeued'
    when 'force_requeue' then 'requeued'
    when 'discard' then 'discarded'
  end;
begin
  for tries in 1 .. 25 loop
    select a.became into became
    from queue.act_on_all(array[act_on_one.id], act_on_one.act, act_on_one.run_at, act_on_one.priority) a;
    if became is not null then
      return became;
    elsif act in ('requeue', 'force_requeue') and queue.reopen(act_on_one.id, act = 'force_requeue') then
      return 'requeued';
    end if;
    if act = 'requeue' then
      holder := queue.key_holder(act_on_one.id);
    end if;
    state := queue.state_of(act_on_one.id);
    exit when state is null or state <> all (wanted) or holder is not null or clock_timestamp() > give_up;
    perform pg_sleep(0.02);
  end loop;
  raise exception using
    errcode = case when state is null then 'P0002' when holder is null and state = any (wanted) then '55P03' else '55000' end,
    message = case
      when state is null then
        format('there is no job %s', act_on_one.id)
      when state = any (wanted) and holder is not null then
        format('job %s is %s, and job %s has taken its uniqueness key; cancel that one, or force this one to live beside it',
          act_on_one.id, state, holder)
      when state = any (wanted) then
        format('job %s is %s, but another transaction has it locked: somebody changes it, enqueues under its key, or it runs in one',
          act_on_one.id, state)
      else
        format('job %s is %s; only a job that is %s can be %s', act_on_one.id, state, array_to_string(wanted, ' or '), done)
      end,
    detail = json_build_object('job', act_on_one.id::text, 'state', state, 'wanted', wanted, 'done', done, 'holder', holder::text);
end
$$;

-- Cancels one job: 'cancelled' if it waited, 'cancelling' if it runs and its handler will be told to stop.
create function queue.cancel(id bigint) returns text
  language sql volatile
begin atomic
  select queue.act_on_one(cancel.id, 'cancel');
end;

-- Puts one job off until that time, or makes it due earlier.
create function queue.reschedule(id bigint, run_at timestamptz) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(reschedule.id, 'reschedule', run_at => reschedule.run_at);
end;

-- Puts one job off for that long from now, by the database's clock.
create function queue.snooze(id bigint, wait interval) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(snooze.id, 'snooze', run_at => pg_catalog.clock_timestamp() + snooze.wait);
end;

-- Makes one scheduled or parked job ready.
create function queue.run_now(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(run_now.id, 'run_now');
end;

-- Gives one waiting job another priority; higher runs first.
create function queue.set_priority(id bigint, priority integer) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(set_priority.id, 'set_priority', priority => set_priority.priority);
end;

-- Brings one job that is over back to the end of its lane or ordering key: a dead letter, a completed, cancelled or expired one. One whose uniqueness
-- key another job holds is refused, unless it is forced to live beside that one.
create function queue.requeue(id bigint, force boolean default false) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(requeue.id, case when requeue.force then 'force_requeue' else 'requeue' end);
end;

-- Deletes one dead letter, with its payload and failures.
create function queue.discard(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(discard.id, 'discard');
end;
