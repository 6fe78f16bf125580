-- Control of one job. Each act is done or refused by name: SQLSTATE P0002 if there is no such job, 55P03 if another transaction has it locked,
-- else 55000; DETAIL is JSON: the job, the state it is in, the states wanted, and what cannot be done.

-- Does an act to one job; returns what came of it. Between two looks a job may pass from one state to another that fits, so it tries a few times.
create function queue.act_on_one(id bigint, act text, run_at timestamptz default null, priority integer default null) returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  one     bigint[] := array[act_on_one.id];
  wanted  text[];
  done    text;
  state   text;
begin
  for tries in 1 .. 5 loop
    case act
      when 'cancel' then
        wanted := '{ready,scheduled,blocked,running}';
        done := 'cancelled';
        if exists (select from queue.cancel_waiting_all(one)) then
          return 'cancelled';
        elsif exists (select from queue.cancel_running_all(one)) then
          return 'cancelling';
        end if;
      when 'reschedule' then
        wanted := '{ready,scheduled}';
        done := 'rescheduled';
        if exists (select from queue.reschedule_all(one, act_on_one.run_at)) then
          return done;
        end if;
      when 'run_now' then
        wanted := '{scheduled}';
        done := 'run now';
        if exists (select from queue.run_now_all(one)) then
          return done;
        end if;
      when 'set_priority' then
        wanted := '{ready,scheduled}';
        done := 'given another priority';
        if exists (select from queue.set_priority_all(one, act_on_one.priority)) then
          return done;
        end if;
      when 'requeue' then
        wanted := '{dead,completed,cancelled}';
        done := 'requeued';
        if exists (select from queue.requeue_all(one)) or queue.reopen(act_on_one.id) then
          return done;
        end if;
      when 'discard' then
        wanted := '{dead}';
        done := 'discarded';
        if exists (select from queue.discard_all(one)) then
          return done;
        end if;
    end case;
    state := queue.state_of(act_on_one.id);
    exit when state is null or state <> all (wanted);
    perform pg_sleep(0.01);
  end loop;
  if state is null then
    raise no_data_found using
      message = format('there is no job %s', act_on_one.id),
      detail = json_build_object('job', act_on_one.id::text, 'state', null, 'wanted', wanted, 'done', done)::text;
  elsif state = any (wanted) then
    raise lock_not_available using
      message = format('job %s is %s, but held by another transaction: by somebody who changes it, or because it runs in one', act_on_one.id, state),
      detail = json_build_object('job', act_on_one.id::text, 'state', state, 'wanted', wanted, 'done', done)::text;
  end if;
  raise object_not_in_prerequisite_state using
    message = format('job %s is %s; only a job that is %s can be %s', act_on_one.id, state, array_to_string(wanted, ' or '), done),
    detail = json_build_object('job', act_on_one.id::text, 'state', state, 'wanted', wanted, 'done', done)::text;
end
$$;

-- Cancels one job: 'cancelled' if it waited, 'cancelling' if it runs and its handler will be asked to end.
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
  select queue.act_on_one(snooze.id, 'reschedule', run_at => pg_catalog.clock_timestamp() + snooze.wait);
end;

-- Makes one scheduled job ready.
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

-- Brings one job that is over back to the end of its lane or ordering key: a dead letter, a completed or a cancelled one.
create function queue.requeue(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(requeue.id, 'requeue');
end;

-- Deletes one dead letter, with its payload and failures.
create function queue.discard(id bigint) returns void
  language sql volatile
begin atomic
  select queue.act_on_one(discard.id, 'discard');
end;
