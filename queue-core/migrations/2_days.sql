-- Days: partitions are made ahead and dropped when their retention is over. Both functions may be called by anybody at any time; one works
-- at a time, the others return at once. A lock that is not to be had within lock_timeout ends the call; the next one tries again.

-- How long the history of a job type is kept, if not as long as the store's. Workers write it at their start from what the types say. What was
-- enqueued before pruned_to has been looked through, for types whose history goes before its day does.
create table queue.retention (
  job_type   text      not null,
  history    interval  not null,
  pruned_to  bigint    not null default 0,
  constraint retention_pkey primary key (job_type),
  constraint retention_job_type_is_a_name check (queue.is_name(job_type)),
  constraint retention_is_positive check (history > '0')
);

create function queue.day_name(day date) returns text
  language sql immutable parallel safe
  return to_char(day, 'YYYYMMDD');

-- Makes the partitions of today and the days ahead; returns how many days it made. A day whose jobs are in the default partition already
-- stays there: moving them would lock out producers.
create function queue.add_days(ahead integer) returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '500ms'
as $$
declare
  today  date := (clock_timestamp() at time zone 'UTC')::date;
  day    date;
  lowest bigint;
  above  bigint;
  parent text;
  made   integer := 0;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then
    return 0;
  end if;
  for day in select today + n from generate_series(0, ahead) n loop
    lowest := queue.id_at(day::timestamp at time zone 'UTC');
    above := queue.id_at((day + 1)::timestamp at time zone 'UTC');
    continue when to_regclass('queue.job_' || queue.day_name(day)) is not null
      or exists (select from queue.job_default d where d.id >= lowest and d.id < above)
      or exists (select from queue.done_default d where d.id >= lowest and d.id < above)
      or exists (select from queue.done_many_default d where d.first_id >= lowest and d.first_id < above)
      or exists (select from queue.failure_default d where d.id >= lowest and d.id < above);
    foreach parent in array array['job', 'done', 'done_many', 'failure'] loop
      -- Made apart and attached: that takes a weaker lock on the parent than making it in place.
      execute format('create table queue.%I (like queue.%I including defaults including constraints including storage)',
        parent || '_' || queue.day_name(day), parent);
      execute format('alter table queue.%I attach partition queue.%I for values from (%s) to (%s)',
        parent, parent || '_' || queue.day_name(day), lowest, above);
    end loop;
    made := made + 1;
  end loop;
  return made;
end
$$;

-- Drops the oldest day that ended before the retention, and returns it; null when there is none. What lives longer than its day (far
-- schedules, dead letters, jobs that finished lately or whose type is kept for longer) moves to the default partitions first. Without a
-- type of its own retention that costs one look at an empty table.
create function queue.drop_day(retention interval) returns date
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '50ms'
as $$
declare
  cutoff timestamptz := clock_timestamp() - drop_day.retention;
  day    date;
  lowest bigint;
  above  bigint;
  parent text;
  living bigint[];
begin
  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then
    return null;
  end if;
  select min(to_date(right(c.relname, 8), 'YYYYMMDD')) into day
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'queue.job'::regclass and c.relname ~ '^job_[0-9]{8}$';
  if day is null or (day + 1)::timestamp at time zone 'UTC' > cutoff then
    return null;
  end if;
  lowest := queue.id_at(day::timestamp at time zone 'UTC');
  above := queue.id_at((day + 1)::timestamp at time zone 'UTC');

  -- Found before the lock, because the day may be large; what an operator brings back meanwhile is found after it.
  living := array(
    select l.id from queue.living l where l.id >= lowest and l.id < above
    union
    select d.id from queue.done d where d.id >= lowest and d.id < above and d.finished_at >= cutoff
    union
    select unnest(d.ids) from queue.done_many d where d.first_id >= lowest and d.first_id < above and d.finished_at >= cutoff);
  if exists (select from queue.retention k where k.history > drop_day.retention) then
    living := array(
      select unnest(living)
      union
      select d.id
      from queue.done d
      join queue.job j on j.id = d.id
      join queue.lane l on l.lane = j.lane
      join queue.retention k on k.job_type = l.job_type
      where d.id >= lowest and d.id < above and j.id >= lowest and j.id < above and d.finished_at >= clock_timestamp() - k.history
      union
      select unnest(d.ids)
      from queue.done_many d
      join queue.lane l on l.lane = d.lane
      join queue.retention k on k.job_type = l.job_type
      where d.first_id >= lowest and d.first_id < above and d.finished_at >= clock_timestamp() - k.history);
  end if;
  foreach parent in array array['job', 'done', 'done_many', 'failure'] loop
    execute format('alter table queue.%I detach partition queue.%I', parent, parent || '_' || queue.day_name(day));
  end loop;
  living := array(
    select unnest(living)
    union
    select l.id from queue.living l where l.id >= lowest and l.id < above);
  foreach parent in array array['job', 'done', 'done_many', 'failure'] loop
    execute format('insert into queue.%I select * from queue.%I d where d.%I = any ($1)',
      parent, parent || '_' || queue.day_name(day), case parent when 'done_many' then 'first_id' else 'id' end)
      using living;
    execute format('drop table queue.%I', parent || '_' || queue.day_name(day));
  end loop;
  return day;
end
$$;
