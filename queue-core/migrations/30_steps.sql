-- Steps of durable jobs: what an attempt has finished, so that the next one goes on from there.
--
--   step   written by the attempt that has the job's lease, under its token (journal.sql, journal_one.sql); deleted with the job: with its day,
--          by housekeeping, or when a completed job is brought back to begin anew
--
-- A step is done once its row is there, and then it is never changed. No other statement waits for these rows.

create table queue.step (
  id       bigint       not null,
  at       timestamptz  not null,  -- columns stand so that none is padded
  ran_ms   integer      not null,
  attempt  smallint     not null,  -- which attempt did it
  name     text         not null,
  until    timestamptz,            -- of a sleep: when it is over
  output   jsonb,                  -- of any other step: what it gave; null for nothing
  constraint step_times_in_range check (least(at, until) >= '1970-01-01+00' and greatest(at, until) < '10000-01-01+00'),
  constraint step_pkey primary key (id, name),
  constraint step_name_is_bounded check (pg_catalog.octet_length(name) between 1 and 200)
) partition by range (id);

-- Rows whose day has no partition, and those that outlive it.
create table queue.step_default partition of queue.step default;

-- Looks through the steps of the next jobs after this one, of `most` steps, and deletes those whose job is gone; returns the last job that it looked
-- at, or null at the end. Rows that others hold are passed over.
create function queue.prune_steps(after bigint, most integer) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '250ms'
as $$
declare
  last bigint;
begin
  select max(p.id) into last
  from (select s.id from queue.step s where s.id > prune_steps.after order by s.id limit prune_steps.most) p;
  delete from queue.step s
  where (s.id, s.name) in (
    select o.id, o.name
    from queue.step o
    where o.id > prune_steps.after and o.id <= last
      and not exists (select from queue.job j where j.id = o.id)
    for update of o skip locked
  );
  return last;
end
$$;

-- The first thousand steps of a job that is there, without their outputs, in the order in which they were done.
create function queue.steps(job bigint)
  returns table (name text, attempt smallint, at timestamptz, ran_ms integer, until timestamptz)
  language sql stable
begin atomic
  select s.name, s.attempt, s.at, s.ran_ms, s.until
  from queue.step s
  where s.id = steps.job
    and exists (select from queue.job j where j.id = steps.job)
  order by s.at, s.name
  limit 1000;
end;
