-- Control of one job, which refuses a wrong state by name: SQLSTATE P0002 if there is no such job, else 55000. Between two looks a job may pass from
-- one state to another, so each tries a few times.

-- Refuses an act on one job, with the state that it is in: SQLSTATE P0002 if there is no such job, else 55000.
create function queue.refuse(id bigint, wanted text, done text) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  state text := queue.state_of(refuse.id);
begin
  if state is null then
    raise no_data_found using message = format('there is no job %s', refuse.id);
  elsif state = any (string_to_array(wanted, ' ')) then
    raise object_not_in_prerequisite_state using
      message = format('job %s is %s, but held by another transaction: by somebody who changes it, or because it runs in one', refuse.id, state);
  end if;
  raise object_not_in_prerequisite_state using
    message = format('job %s is %s; only a job that is %s can be %s', refuse.id, state, array_to_string(string_to_array(wanted, ' '), ' or '), done);
end
$$;

-- Cancels one job: 'cancelled' if it waited, 'cancelling' if it runs and its handler will be asked to end.
create function queue.cancel(id bigint) returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- Between two looks it may pass from one state to the other.
  for tries in 1 .. 5 loop
    if exists (select from queue.cancel_waiting_all(array[cancel.id])) then
      return 'cancelled';
    elsif exists (select from queue.call_off_all(array[cancel.id])) then
      return 'cancelling';
    end if;
    exit when queue.state_of(cancel.id) is null or queue.state_of(cancel.id) not in ('ready', 'scheduled', 'blocked', 'running');
    perform pg_sleep(0.01);
  end loop;
  perform queue.refuse(cancel.id, 'ready scheduled blocked running', 'cancelled');
end
$$;

-- Puts one job off until that time, or makes it due earlier.
create function queue.reschedule(id bigint, run_at timestamptz) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  for tries in 1 .. 5 loop
    if exists (select from queue.reschedule_all(array[reschedule.id], reschedule.run_at)) then
      return;
    end if;
    exit when queue.state_of(reschedule.id) is null or queue.state_of(reschedule.id) not in ('ready', 'scheduled');
    perform pg_sleep(0.01);
  end loop;
  perform queue.refuse(reschedule.id, 'ready scheduled', 'rescheduled');
end
$$;

-- Puts one job off for that long from now, by the database's clock.
create function queue.snooze(id bigint, wait interval) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform queue.reschedule(snooze.id, clock_timestamp() + snooze.wait);
end
$$;

-- Makes one scheduled job ready.
create function queue.run_now(id bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  for tries in 1 .. 5 loop
    if exists (select from queue.run_now_all(array[run_now.id])) then
      return;
    end if;
    exit when queue.state_of(run_now.id) is distinct from 'scheduled';
    perform pg_sleep(0.01);
  end loop;
  perform queue.refuse(run_now.id, 'scheduled', 'run now');
end
$$;

-- Gives one waiting job another priority; higher runs first.
create function queue.set_priority(id bigint, priority integer) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  for tries in 1 .. 5 loop
    if exists (select from queue.set_priority_all(array[set_priority.id], set_priority.priority)) then
      return;
    end if;
    exit when queue.state_of(set_priority.id) is null or queue.state_of(set_priority.id) not in ('ready', 'scheduled');
    perform pg_sleep(0.01);
  end loop;
  perform queue.refuse(set_priority.id, 'ready scheduled', 'given another priority');
end
$$;
