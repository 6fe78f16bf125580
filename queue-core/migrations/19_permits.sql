-- Permits: the claim of jobs that limits cover. The limits are in 18_limits.sql.
--
-- Whoever claims chooses candidates before it waits for anybody; locks the gates of the limits, in one order; and then sees what all before it have
-- committed. So claims under one limit come one after the other, and what each takes is in permit and rate when the next one looks. Gates are rows of
-- a table, so that nobody without a right to the store can stand in the way.

-- How many more jobs may begin now under a rate of all, and if none in how many ms.
create function queue.starts_left(gate bigint, starts integer, period_ms bigint, burst integer, out free bigint, out wait_ms float8)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  at  bigint := queue.clock_ms();
begin
  select min(m.starts - u.n), max(o.wait_ms)
  into free, wait_ms
  from (values (starts_left.starts, starts_left.period_ms), (starts_left.burst, starts_left.period_ms * starts_left.burst / starts_left.starts))
    m (starts, period_ms)
  cross join lateral (
    select coalesce(sum(r.n), 0) as n
    from queue.rate r
    where r.gate = starts_left.gate and r.line = 0 and r.at_ms > at - m.period_ms
  ) u
  left join lateral (
    select (r.at_ms + m.period_ms - at)::float8 as wait_ms
    from (
      select r.at_ms, sum(r.n) over (order by r.at_ms) as gone
      from queue.rate r
      where r.gate = starts_left.gate and r.line = 0 and r.at_ms > at - m.period_ms
    ) r
    where r.gone > u.n - m.starts
    order by r.at_ms
    limit 1
  ) o on u.n >= m.starts
  where m.starts is not null;
end
$$;

-- How many permits each of these limits has left (null: any number); and, if a time must come first, how many ms that is. Permits of each are read
-- from a floor on, or from the first one; and the lowest place that is held. is_new: the limit covers other lanes than it has counted, or means
-- something else. It is written into the statements that ask it: stable, for it sees what they see.
create function queue.room(gates bigint[], floors bigint[]) returns table (
    gate bigint, wanted boolean, free bigint, wait_ms float8, within_ms bigint, floor bigint, is_new boolean, keyed boolean
  )
  language sql stable
begin atomic
  select g.gate, g.wanted, least(b.concurrency - h.n, w.free, case when p.wait_ms > 0 then 0 end), greatest(w.wait_ms, p.wait_ms), b.within_ms,
    h.lowest, g.adopted < b.number, b.keyed
  from unnest(room.gates, room.floors) f (gate, floor)
  join queue.gate g on g.gate = f.gate
  join queue.bound_in_all b on b.gate = g.gate
  cross join lateral (
    select coalesce(sum(h.n), 0) as n,
      min(h.place) as lowest
    from queue.permit h
    where h.gate = g.gate
      and h.place >= coalesce(f.floor, 0)
  ) h
  cross join lateral (
    select case when g.not_before > c.now then date_part('epoch', g.not_before - c.now) * 1000 end as wait_ms from clock_timestamp() c (now)
  ) p
  left join lateral (
    select s.free, s.wait_ms
    from queue.starts_left(g.gate, b.starts, b.period_ms, b.burst) s
    where b.starts is not null offset 0
  ) w on true;
end;

-- Reads leases again: those of these tokens, or all if they are null. What a lease lists no more holds no permit; so this gives back too few, never
-- too many, whoever forgets to say what it ended.
create function queue.read_permits(gates bigint[], floors bigint[], tokens uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with still as materialized (
    select h.gate, h.place, l.n
    from unnest(read_permits.gates, read_permits.floors) f (gate, floor)
    join queue.permit h on h.gate = f.gate
      and h.place >= coalesce(f.floor, 0)
    left join lateral (select cardinality(l.ids) as n from queue.lease l where l.token = h.token offset 0) l on true
    where (read_permits.tokens is null or h.token = any (read_permits.tokens))
      and h.ids is null
  ), gone as (
    delete from queue.permit h using still s
    where h.gate = s.gate and h.place = s.place
      and s.n is null
  )
  update queue.permit h set n = s.n from still s
  where h.gate = s.gate and h.place = s.place
    and s.n < h.n;
end
$$;

-- Whether some worker lives that does not know yet which lanes a limit of this number covers: it may claim of them freely.
create function queue.limit_awaits(number bigint) returns table (id uuid, name text, host text, pid integer)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select w.id, w.name, w.host, w.pid from queue.worker w where w.paused_seen < limit_awaits.number and w.expires_at > now() order by w.name, w.id
$$;

-- Counts in what runs already under limits that are new, or that cover other lanes than before. False if some worker may not know them yet.
create function queue.adopt(gates bigint[]) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  fresh  record;
begin
  for fresh in
    select b.gate, b.name, b.number, b.keyed
    from queue.bound_in_force b
    join queue.gate g on g.gate = b.gate and g.adopted < b.number
    where b.gate = any (adopt.gates)
  loop
    if exists (select from queue.limit_awaits(fresh.number)) then
      return false;
    end if;
    delete from queue.permit h where h.gate = fresh.gate;
    insert into queue.permit (gate, token, n, ids, lines)
    select fresh.gate, l.token, count(*), case when fresh.keyed then array_agg(u.id) end,
      case when fresh.keyed then array_agg(coalesce(j.line, 0)) end
    from queue.lease l
    cross join lateral unnest(l.ids) u (id)
    cross join lateral (select j.lane, j.line from queue.job j where j.id = u.id offset 0) j
    cross join lateral (select d.queue, d.job_type from queue.lane d where d.lane = j.lane limit 1) d
    where queue.covers(fresh.name, d.queue, d.job_type)
    group by l.token;
    if fresh.keyed then
      -- What began of jobs without a key may have been counted by what it meant before, of all: that has no total.
      update queue.rate r set total = s.total
      from (select o.at_ms, sum(o.n) over (order by o.at_ms) as total from queue.rate o where o.gate = fresh.gate and o.line = 0) s
      where r.gate = fresh.gate and r.line = 0 and r.at_ms = s.at_ms;
    end if;
    update queue.gate g set adopted = fresh.number where g.gate = fresh.gate;
  end loop;
  return true;
end
$$;

-- ready -> lease, as claim.sql, of lanes that these limits cover and no others. Each row is a job, but for the last, which has no id: it says why it
-- took less than there was (`gone`: a limit is there no more; `unknown`: not all workers know of a limit yet; `full`; `rate`), in how many ms to ask
-- again if a time must come, the time of the claim by the database's clock, and within how many ms of that the jobs must begin.
-- begins: the floors of lanes, and of those that stand in lines the line after which to go on: see queue.choose_lines. A job that stood in one is
-- given with its line; all with their turns.
-- freed: leases of which this worker has ended jobs since its last claim under any of these limits. slack_ms: how long the worker may need until
-- they begin, if that is longer than such a rate leaves by itself. permits: from where on to read the permits of each limit, as an earlier claim of
-- this worker has returned it, and that claim is on the disk; or null.
create function queue.claim_limited(
  token uuid, worker uuid, gates bigint[], lanes bigint[], begins bigint[], in_lines boolean[], mosts integer[], most integer, freed uuid[],
  slack_ms bigint, permits bigint[]
) returns table (
    lane bigint, turn bigint, line bigint, seq bigint, id bigint, attempts smallint, crashes smallint,
    closed text, wait_ms float8, at_ms bigint, within_ms bigint, permit_floors bigint[]
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  chosen  tid[];
  found_  integer;
  free    bigint;
  due_ms  float8;
  within  bigint;
  wanted  boolean;
  is_new  boolean;
  keyed   boolean;
  is_read boolean := false;  -- all leases were read
  lowest  bigint[];
  took    integer := 0;
  began   bigint;
begin
  chosen := array(
    select p.at
    from unnest(claim_limited.lanes, claim_limited.begins, claim_limited.in_lines, claim_limited.mosts) l (lane, begin, in_lines, most)
    cross join lateral (
      select o.at
      from (
        select r.ctid as at
        from queue.ready r
        where r.lane = l.lane and r.seq >= l.begin and not l.in_lines
        order by r.seq
        limit l.most
        for update skip locked
      ) o
      union all
      select c.at
      from queue.choose_lines(l.lane, l.begin, 1, least(l.most, claim_limited.most)) c
      where l.in_lines
    ) p
    limit claim_limited.most
  );
  if cardinality(chosen) + cardinality(claim_limited.freed) = 0 then
    return;
  end if;
  perform from queue.gate g where g.gate = any (claim_limited.gates) order by g.gate for update;
  get diagnostics found_ = row_count;
  if found_ < cardinality(claim_limited.gates) then
    closed := 'gone';
    return next;
    return;
  end if;
  if cardinality(claim_limited.freed) > 0 then
    perform queue.read_permits(claim_limited.gates, claim_limited.permits, claim_limited.freed);
  end if;
  for attempt in 1..3 loop
    select coalesce(min(r.free), claim_limited.most), bool_or(r.wanted),
      case when min(r.within_ms) is not null then greatest(min(r.within_ms), claim_limited.slack_ms) end, bool_or(r.is_new), bool_or(r.keyed),
      array_agg(r.floor order by array_position(claim_limited.gates, r.gate))
    into free, wanted, within, is_new, keyed, lowest
    from queue.room(claim_limited.gates, claim_limited.permits) r;
    if keyed or (is_new and not queue.adopt(claim_limited.gates)) then
      closed := 'unknown';
      return next;
      return;
    end if;
    if not is_new then
      exit when is_read or free >= cardinality(chosen);
      -- What others ended and told nobody: once a second, by whoever is short of permits first.
      update queue.gate g set read_at = clock_timestamp()
      where g.gate = any (claim_limited.gates) and g.read_at < clock_timestamp() - interval '1 s';
      exit when not found;
      perform queue.read_permits(claim_limited.gates, claim_limited.permits, null);
      is_read := true;
    end if;
  end loop;
  began := queue.clock_ms();
  if free > 0 and cardinality(chosen) > 0 then
    if array_position(lowest, null) is not null then
      lowest := queue.permit_floors(lowest);
    end if;
    return query
    with taken as materialized (
      delete from queue.ready
      where ctid = any (chosen[1:least(free, claim_limited.most)::integer])
        and exists (select from queue.worker w where w.id = claim_limited.worker and w.expires_at > now())
        and not exists (
          select from queue.gate g join queue.bound_in_force b on b.gate = g.gate where g.gate = any (claim_limited.gates) and g.adopted < b.number
        )
      returning ctid as at, case when line is null then lane else queue.twin_of(lane) end as lane, line, seq, id,
        least(attempts + 1, 32767)::smallint as attempts, crashes
    ), leased as (
      insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select claim_limited.token, claim_limited.worker, case when min(t.lane) = max(t.lane) then min(t.lane) end, array_agg(t.id),
        array_agg(t.attempts), array_agg(t.crashes)
      from (select * from taken order by id) t
      having count(*) > 0
    ), noted as (
      insert into queue.permit (gate, token, n)
      select g, claim_limited.token, c.n from (select count(*) as n from taken) c cross join unnest(claim_limited.gates) g where c.n > 0
    )
    select t.lane, p.turn, t.line, t.seq, t.id, t.attempts, t.crashes, null::text, null::float8, null::bigint, null::bigint, null::bigint[]
    from taken t
    join queue.in_turn(chosen) p on p.at = t.at;
    get diagnostics took = row_count;
  end if;
  if took > 0 and within is not null then
    insert into queue.rate as r (gate, at_ms, n)
    select b.gate, (began + within + tick.ms) / tick.ms * tick.ms, took
    from queue.bound_in_force b
    cross join lateral (select greatest(1, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 1000) as ms) tick
    where b.gate = any (claim_limited.gates) and b.starts is not null
    on conflict on constraint rate_pkey do update set n = r.n + excluded.n;
  end if;
  if took > 0 and random() < 0.01 then
    perform queue.move_permits(claim_limited.gates, lowest);
  end if;
  if free < cardinality(chosen) then
    select max(r.wait_ms) into due_ms from queue.room(claim_limited.gates, claim_limited.permits) r where r.free <= 0;
    update queue.gate g set wanted = true
    from queue.room(claim_limited.gates, claim_limited.permits) r
    where g.gate = r.gate and not g.wanted and r.free <= 0 and r.wait_ms is null;
  elsif wanted then
    perform queue.tell_of_room(claim_limited.gates, claim_limited.permits);
  end if;
  -- Nothing was taken though there was room: a limit means something else by now, or this worker lives no more.
  closed := case
    when took = 0 and free > 0 and cardinality(chosen) > 0 then 'unknown' when free >= cardinality(chosen) then null
    when due_ms is null then 'full' else 'rate' end;
  wait_ms := due_ms;
  at_ms := began;
  within_ms := within;
  permit_floors := case when took > 0 then lowest end;
  return next;
end
$$;

-- From where on to read the permits of limits of which these are the lowest places that are held, or null: then below the next place. Only for who
-- has them locked: then none below comes to be held any more.
create function queue.permit_floors(lowest bigint[]) returns bigint[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select coalesce(f.place, nextval('queue.permit_seq')) from unnest(permit_floors.lowest) with ordinality f (place, nr) order by f.nr
  );
end
$$;

-- Gives what is held for long a later place, lest a snapshot that is held for hours keep dead entries above it. Only for who has taken permits of
-- these limits, and now and then.
create function queue.move_permits(gates bigint[], floors bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  update queue.permit h
  set place = nextval('queue.permit_seq')
  from unnest(move_permits.gates, move_permits.floors) f (gate, floor)
  where h.gate = f.gate and h.place >= f.floor and h.place < currval('queue.permit_seq') - 500;
end
$$;

-- Tells those who found no permit of these limits, if there are some now that whoever ended jobs did not need.
create function queue.tell_of_room(gates bigint[], floors bigint[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  bigint;
begin
  for one in
    update queue.gate g set wanted = false
    from queue.room(tell_of_room.gates, tell_of_room.floors) r
    where g.gate = r.gate and g.wanted and coalesce(r.free, 1) > 0
    returning g.gate
  loop
    perform queue.notify('wake', '!room ' || one);
  end loop;
end
$$;
