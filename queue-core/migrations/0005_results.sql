-- Results, waited for, and progress, reported. Neither is a state of a job: a job is where the tables of 0001 have its entry.

-- What running jobs say of themselves: a row from the first report on, written under the lease of the attempt (note). A retry keeps it for its
-- checkpoint. It goes soon after the job was completed or cancelled (clear_progress), with a completed job that is brought back (reopen),
-- and stays with a dead letter, whose next life goes on from the checkpoint.
create table queue.progress (
  id          bigint            not null,
  attempt     smallint          not null,               -- that reported last
  updated_at  timestamptz       not null default now(),
  fraction    double precision,
  stage       text,
  counts      jsonb             not null default '{}',  -- events by name, of that attempt
  checkpoint  jsonb,
  constraint progress_pkey primary key (id),
  constraint progress_fraction_in_range check (fraction between 0 and 1),
  constraint progress_counts_by_name check (jsonb_typeof(counts) = 'object')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Which processes wait for jobs to be over. Workers notify only while one does.
create table queue.waiter (
  id          uuid        not null,
  expires_at  timestamptz not null,
  constraint waiter_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- How far these jobs are, in one snapshot: state is completed, dead, cancelled, or live for all that is not over. A job that is not there has no
-- row: unknown, not committed yet, pruned, or completed without a record. The settings are there because a plan made while a table was
-- empty would stay a scan of all of it.
create function queue.look(ids bigint[])
  returns table (
    id bigint, state text, attempts smallint, error text, output jsonb,
    reported smallint, updated_at timestamptz, fraction double precision, stage text, counts jsonb
  )
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
begin
  return query
    select j.id, coalesce(e.state, 'live'), e.attempts, e.error, e.output, p.attempt, p.updated_at, p.fraction, p.stage, p.counts
    from unnest(look.ids) u (id)
    cross join lateral (select j.id from queue.job j where j.id = u.id offset 0) j
    left join lateral (
      select 'completed' as state, d.attempts, null::text as error, d.output
      from queue.done d
      where d.id = u.id and not d.cancelled
      union all
      select 'completed', 1::smallint, null, null
      from queue.done_many m
      where m.first_id between (u.id >> 33) << 33 and u.id and m.last_id >= u.id and u.id = any (m.ids)
      union all
      select 'dead', d.attempts, d.error, null
      from queue.dead d
      where d.id = u.id
      union all
      select 'cancelled', d.attempts, (select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1), null
      from queue.done d
      where d.id = u.id and d.cancelled
      limit 1
    ) e on true
    left join lateral (
      select p.attempt, p.updated_at, p.fraction, p.stage, p.counts
      from queue.progress p
      where p.id = u.id
      offset 0
    ) p on true;
end
$$;
