-- Daily partitions, which are created in advance and dropped once their retention has ended. add_days and drop_day may be called at any
-- time: if several sessions call them concurrently, one call does the work and the other calls return immediately. If a call does not get
-- a lock within lock_timeout, it fails and the next call retries. The partitions belong to the store's owner, regardless of the calling
-- role.

-- History retentions of job types, if they differ from the store's default. Workers write them at startup from the job types' options.
-- For a retention shorter than the default, pruning has processed all jobs with ids below pruned_to.
create table queue.retention (
  job_type   text      not null,
  history    interval  not null,
  pruned_to  bigint    not null default 0,
  constraint retention_pkey primary key (job_type),
  constraint retention_job_type_is_a_name check (queue.is_name(job_type)),
  constraint retention_is_positive check (history > '0'),
  -- A larger value would make the cutoff calculation fail for all types.
  constraint retention_in_range check (history <= '400000 days')
);

create function queue.day_name(day date) returns text
  language sql immutable parallel safe
  return to_char(day, 'YYYYMMDD');

-- Returns the lowest id of the UTC day before the day of `moment`, rounded up to a boundary that the ids of a done_many row never cross.
create function queue.day_before(moment timestamptz) returns bigint
  language sql immutable strict parallel safe
  return ((queue.id_at((pg_catalog.date_trunc('day', moment at time zone 'UTC') - interval '1 day') at time zone 'UTC') >> 33) + 1) << 33;

-- Creates the partitions of today and of the next `ahead` days, and returns the number of days for which partitions were created. A day
-- that already has jobs in the default partition gets no partition, because moving the jobs would block producers. A day also gets no
-- partition if another object has the partition's name or range. A warning then reports the object.
create function queue.add_days(ahead integer) returns integer
  language plpgsql volatile security definer
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
  perform from queue.stripe s where s.purpose = 'days' for update skip locked;
  if not found then
    return 0;
  end if;
  for day in select today + n from generate_series(0, ahead) n loop
    lowest := queue.id_at(day::timestamp at time zone 'UTC');
    above := queue.id_at((day + 1)::timestamp at time zone 'UTC');
    continue when to_regclass('queue.job_' || queue.day_name(day)) is not null
      or exists (select from queue.job_default d where d.id >= lowest and d.id < above)
      or exists (select from queue.done_default d where d.id >= lowest and d.id < above)
      or exists (select from queue.done_many_default d where d.first_id >= lowest and d.first_id < above)
      or exists (select from queue.failure_default d where d.id >= lowest and d.id < above)
      or exists (select from queue.step_default d where d.id >= lowest and d.id < above);
    begin
      foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
        -- The table is created separately and then attached, because creating a partition in place takes a stronger lock on the parent.
        execute format('create table queue.%I (like queue.%I including defaults including constraints including storage)',
          parent || '_' || queue.day_name(day), parent);
        if parent in ('done_many', 'failure') then
          execute format('alter table queue.%I replica identity full', parent || '_' || queue.day_name(day));
        end if;
        execute format('alter table queue.%I attach partition queue.%I for values from (%s) to (%s)',
          parent, parent || '_' || queue.day_name(day), lowest, above);
      end loop;
      made := made + 1;
    exception when duplicate_table or invalid_object_definition then
      raise warning 'queue.add_days: cannot create the partitions of day %, its jobs go to the default partitions: %', queue.day_name(day), sqlerrm;
    end;
  end loop;
  return made;
end
$$;

-- Drops the partitions of the oldest day that is past the retention and nearly empty. Returns the day, or null if there is none.
--
-- Jobs that outlive their day move to the default partitions: jobs scheduled far ahead, dead letters, recently finished jobs and jobs
-- with a longer retention. The move blocks producers and claims, so at most `most` jobs are moved. A day with more survivors stays, and
-- prune_days deletes its rows individually.
--
-- The partitions of every day add a little to the cost of each statement. Therefore, if more than `days` days are past the retention, the
-- oldest day is dropped even if up to `at_most` jobs outlive it. If a day cannot be dropped, a warning reports the day and the function
-- continues with the next day.
create function queue.drop_day(retention interval, most integer default 1000, days integer default 30, at_most integer default 20000)
  returns date
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '50ms'
as $$
declare
  cutoff timestamptz := clock_timestamp() - drop_day.retention;
  names  text[];
  name   text;
  oldest text;
  day    date;
  lowest bigint;
  beyond  bigint;
  parent text;
  allowed integer;
  living bigint[];
begin
  if retention is null then
    raise null_value_not_allowed using message = 'queue.drop_day: the retention may not be null';
  end if;
  perform from queue.stripe s where s.purpose = 'days' for update skip locked;
  if not found then
    return null;
  end if;
  -- The names end with the date, so their order is the order of the days.
  names := array(
    select c.relname
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'queue.job'::regclass and c.relname ~ '^job_[0-9]{8}$'
      and c.relname < 'job_' || to_char(cutoff at time zone 'UTC', 'YYYYMMDD')
    order by c.relname
  );
  oldest := names[1];
  foreach name in array names loop
    begin
      day := to_date(right(name, 8), 'YYYYMMDD');
      lowest := queue.id_at(day::timestamp at time zone 'UTC');
      beyond := queue.id_at((day + 1)::timestamp at time zone 'UTC');
      allowed := case when name = oldest and cardinality(names) > days then at_most else most end;

      -- Survivors are read before the lock is taken, because the day may be large. Jobs that an operator requeues before the lock is
      -- taken are read again under the lock.
      living := array(
        select l.id from queue.unfinished_job l where l.id >= lowest and l.id < beyond
        union all
        select d.id from queue.done d where d.id >= lowest and d.id < beyond and d.finished_at >= cutoff
        union all
        select unnest(d.ids) from queue.done_many d where d.first_id >= lowest and d.first_id < beyond and d.finished_at >= cutoff
        limit allowed + 1);
      if exists (select from queue.retention k where k.history > drop_day.retention) then
        living := living || array(
          select d.id
          from queue.done d
          join queue.job j on j.id = d.id
          join queue.lane l on l.lane = j.lane
          join queue.retention k on k.job_type = queue.type_of(l.job_type)
          where d.id >= lowest and d.id < beyond and j.id >= lowest and j.id < beyond and d.finished_at >= clock_timestamp() - k.history
          union all
          select unnest(d.ids)
          from queue.done_many d
          join queue.lane l on l.lane = d.lane
          join queue.retention k on k.job_type = queue.type_of(l.job_type)
          where d.first_id >= lowest and d.first_id < beyond and d.finished_at >= clock_timestamp() - k.history
          limit allowed + 1);
      end if;
      continue when cardinality(living) > allowed;
      continue when allowed * 100 < (
        select count(*) from (select from queue.step s where s.id = any (living) limit allowed * 100 + 1) n);
      foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
        execute format('alter table queue.%I detach partition queue.%I', parent, parent || '_' || queue.day_name(day));
      end loop;
      -- In ready, only entries of jobs that re-entered the table have to be read again. The read above has found all other entries, which
      -- may be numerous.
      living := living || array(
        select r.id from queue.ready r where r.id >= lowest and r.id < beyond and r.seq <> r.id
        union all select s.id from queue.scheduled s where s.id >= lowest and s.id < beyond
        union all select u.id from queue.lease h cross join lateral unnest(h.ids) u (id) where u.id >= lowest and u.id < beyond
        union all select d.id from queue.dead d where d.id >= lowest and d.id < beyond
        union all select p.id from queue.parked p where p.id >= lowest and p.id < beyond
        union all select b.id from queue.blocked b where b.id >= lowest and b.id < beyond);
      foreach parent in array array['job', 'done', 'done_many', 'failure', 'step'] loop
        execute format('insert into queue.%I select * from queue.%I d where d.%I = any ($1)',
          parent, parent || '_' || queue.day_name(day), case parent when 'done_many' then 'first_id' else 'id' end)
          using living;
        execute format('drop table queue.%I', parent || '_' || queue.day_name(day));
      end loop;
      return day;
    exception
      -- Transient errors end the call, and the next call retries.
      when lock_not_available or deadlock_detected or insufficient_resources then
        raise;
      when others then
        raise warning 'queue.drop_day: cannot drop the partitions of day %: %', right(name, 8), sqlerrm;
    end;
  end loop;
  return null;
end
$$;
