-- How a job is, and what came of it, for every language: status is one look, wait looks until the job is over. Both only read.
-- With queue.enqueue and queue.cancel these are all that a client needs (docs/ANY_LANGUAGE.md).

-- One job as its producer sees it. No row when it is not there: unknown, not committed yet, pruned, or completed without a record. error is why
-- its last attempt failed, null once it is completed; fraction and stage are what it last said of itself. In one snapshot it has one entry. A
-- job of which no other table has an entry is ready, so ready itself, which is not ordered by id, is not read. Planned for each call: a plan
-- made while a table was empty is a bad one once it is full.
create function queue.status(id bigint)
  returns table (state text, attempts smallint, error text, output jsonb, fraction double precision, stage text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
begin
  return query
    select coalesce(e.state, 'ready'), coalesce(e.attempts, 0::smallint),
      coalesce(
        e.error,
        (select f.error from queue.failure f where f.id = status.id and e.state is distinct from 'completed' order by f.at desc limit 1)
      ),
      e.output, case when e.state = 'completed' then 1 else p.fraction end, p.stage
    from queue.job j
    left join lateral (
      select case when d.cancelled then 'cancelled' else 'completed' end as state, d.attempts, null::text as error, d.output
      from queue.done d
      where d.id = status.id
      union all
      select 'completed', 1::smallint, null, null
      from queue.done_many m
      where m.first_id between (status.id >> 33) << 33 and status.id and m.last_id >= status.id and status.id = any (m.ids)
      union all
      select 'dead', d.attempts, d.error, null
      from queue.dead d
      where d.id = status.id
      union all
      select 'scheduled', s.attempts, null, null
      from queue.scheduled s
      where s.id = status.id
      union all
      select 'blocked', 0::smallint, null, null
      from queue.blocked b
      where b.key = j.key and b.id = status.id
      union all
      select 'running', u.attempts, null, null
      from queue.lease h
      cross join lateral rows from (unnest(h.ids), unnest(h.attempts)) u (id, attempts)
      where status.id = any (h.ids) and u.id = status.id
      limit 1
    ) e on true
    left join queue.progress p on p.id = j.id
    where j.id = status.id;
end
$$;

-- Whether our own transaction has written this job's row, which nobody else can see then. Another's row that we can see is committed.
create function queue.is_ours(id bigint) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
as $$
declare
  written bigint;
  today   bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  select j.xmin::text::bigint into written from queue.job j where j.id = is_ours.id;
  -- A row has the low half of its transaction's number: the one meant is the nearest to today's. A savepoint has a number of its own.
  written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;
  return coalesce(pg_xact_status(written::text::xid8) = 'in progress', false);
end
$$;

-- Waits until a job is over (completed, dead or cancelled), and returns its status; no row if it is not over when the timeout has passed. An
-- unknown job is P0002, a transaction that could wait for ever 25000: one that sees only its beginning (repeatable read, serializable),
-- or one that has itself enqueued the job, or changed its row, and has not committed.
--
-- Each look is a statement with a snapshot of its own, the next one an eighth of the time waited later, from 5 to 250 ms: an hour's wait costs
-- what a second's does. Between two looks it holds no lock on a table, or a day could not be dropped: a look that found the job alive is
-- rolled back. But the caller's statement has a snapshot, behind which no vacuum cleans up: keep the timeout short, and call again.
create function queue.wait(id bigint, timeout interval default '30 s')
  returns table (state text, attempts smallint, error text, output jsonb, fraction double precision, stage text)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  began   timestamptz := clock_timestamp();
  until   timestamptz := began + wait.timeout;
  seen    text;
  ours    boolean;
begin
  if wait.id is null or wait.timeout is null then
    raise null_value_not_allowed using message = 'queue.wait: neither id nor timeout may be null';
  elsif current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise invalid_transaction_state using
      message = format('queue.wait: a %s transaction sees only its beginning, never the end of a job', current_setting('transaction_isolation')),
      hint = 'Wait in a read committed transaction, or outside of one.';
  end if;
  loop
    begin
      seen := (select l.state from queue.look(array[wait.id]) l);
      if seen <> 'live' then
        return query select s.* from queue.status(wait.id) s where s.state in ('completed', 'dead', 'cancelled');
        if found then
          return;
        end if;
      elsif ours is null then
        ours := queue.is_ours(wait.id);
      end if;
      raise sqlstate 'QVOID';
    exception when sqlstate 'QVOID' then
      null;
    end;
    if seen is null then
      raise no_data_found using message = format('there is no job %s', wait.id),
        detail = 'It is unknown, not committed yet, pruned, or was completed without a record.';
    elsif ours then
      raise invalid_transaction_state using
        message = format('queue.wait: job %s was enqueued or changed in this transaction, and cannot run before its end', wait.id),
        hint = 'Commit, then wait.';
    elsif clock_timestamp() >= until then
      return;
    end if;
    perform pg_sleep(extract(epoch from least(
      greatest(least((clock_timestamp() - began) / 8, interval '250 ms'), interval '5 ms'),
      until - clock_timestamp())));
  end loop;
end
$$;
