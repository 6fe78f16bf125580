-- The claim of jobs that limits by key cover. What those are is in 21_keyed.sql, how claims under limits go in 19_permits.sql, and which jobs one
-- takes in 22_keyed_lines.sql.

-- Whether all of these lines are without room, and whoever ends a job of one knows that somebody waits for it (or a time must come, in so many ms;
-- or no more can be noted of the limit); and all leases were read lately. Then there is nothing to lock a gate for.
create function queue.known_full(gates bigint[], floors bigint[], lines bigint[], out is_known boolean, out wait_ms float8)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- Read before the room is: who ends a job after this tells of it.
  known  jsonb := (select jsonb_object_agg(g.gate, to_jsonb(g.lines)) from queue.gate g where g.gate = any (known_full.gates));
begin
  if exists (select from queue.gate g where g.gate = any (known_full.gates) and g.read_at < clock_timestamp() - interval '1 s') then
    is_known := false;
    return;
  end if;
  select coalesce(bool_and(l.is_known), false), min(l.wait_ms)
  into is_known, wait_ms
  from (
    select bool_or(r.free <= 0 and (r.wait_ms is not null or n.lines @> to_jsonb(r.line) or jsonb_array_length(n.lines) >= 100)) as is_known,
      min(r.wait_ms) as wait_ms
    from queue.line_room(known_full.gates, known_full.floors, known_full.lines) r
    cross join lateral (select known -> r.gate::text as lines) n
    group by r.line
  ) l;
end
$$;

-- Of these lines those that have no room now and in which jobs wait; and, if a time must come, in how many ms. passed: in which some were seen.
create function queue.lines_waiting(gates bigint[], floors bigint[], lanes bigint[], in_lines boolean[], lines bigint[], passed bigint[])
  returns table (line bigint, wait_ms float8)
  language sql volatile
begin atomic
  select r.line, max(r.wait_ms)
  from queue.line_room(lines_waiting.gates, lines_waiting.floors, lines_waiting.lines || lines_waiting.passed) r
  where r.free <= 0 and (r.line = any (lines_waiting.passed) or exists (
    select
    from unnest(lines_waiting.lanes, lines_waiting.in_lines) l (lane, in_lines)
    cross join lateral (
      select from queue.ready q where q.lane = queue.twin_of(l.lane) and q.line >= r.line and q.line <= r.line order by q.line, q.seq limit 1
    ) q
    where l.in_lines
  ))
  group by r.line;
end;

-- Counts a start of each of these lines under each of these limits that has a rate: at this time, or somewhat later.
create function queue.count_starts(gates bigint[], lines bigint[], at bigint) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with begin_at as materialized (
    select s.gate, s.line, s.at_ms, s.n, l.total, coalesce(l.at_ms > s.at_ms, false) as is_passed
    from (
      select b.gate, case when b.keyed then k.line else 0 end as line,
        (count_starts.at + tick.ms) / tick.ms * tick.ms as at_ms,
        count(*)::integer as n
      from queue.bound_in_force b
      cross join lateral (select greatest(1, b.period_ms * coalesce(b.burst, b.starts) / b.starts / 1000) as ms) tick
      cross join unnest(count_starts.lines) k (line)
      where b.gate = any (count_starts.gates) and b.starts is not null
      group by 1, 2, 3
    ) s
    left join lateral (
      select r.at_ms, r.total from queue.rate r where r.gate = s.gate and r.line = s.line order by r.at_ms desc limit 1
    ) l on true
  ), moved_on as (
    -- What others took who need longer until it begins.
    update queue.rate r set total = r.total + l.n
    from (
      select l.at, s.n
      from begin_at s
      cross join lateral (
        select r.ctid as at from queue.rate r where r.gate = s.gate and r.line = s.line and r.at_ms > s.at_ms offset 0
      ) l
      where s.is_passed
    ) l
    where r.ctid = l.at
  )
  insert into queue.rate as r (gate, line, at_ms, n, total)
  select s.gate, s.line, s.at_ms, s.n, s.n + case when not s.is_passed then coalesce(s.total, 0) else coalesce(
    (select p.total from queue.rate p where p.gate = s.gate and p.line = s.line and p.at_ms <= s.at_ms order by p.at_ms desc limit 1),
    (select p.total - p.n from queue.rate p where p.gate = s.gate and p.line = s.line and p.at_ms > s.at_ms order by p.at_ms limit 1), 0) end
  from begin_at s
  on conflict on constraint rate_pkey do update set n = r.n + excluded.n, total = excluded.total;
end
$$;

-- ready -> lease, as queue.claim_limited, of lanes that these limits cover of which some are by key: of each key no more than there is room for. Rows
-- are those of claim_limited, but before the last there is one for each lane that stands in lines, with no id, and the line after which it goes on.
-- The last one says too: `lines`: all lines were looked at that wait, and what is left of them has no room; `more`: some were not looked at yet.
create function queue.claim_keyed(
  token uuid, worker uuid, gates bigint[], lanes bigint[], begins bigint[], in_lines boolean[], mosts integer[], most integer, freed uuid[],
  slack_ms bigint, permits bigint[]
) returns table (
    lane bigint, turn bigint, line bigint, seq bigint, id bigint, attempts smallint, crashes smallint,
    closed text, wait_ms float8, at_ms bigint, within_ms bigint, permit_floors bigint[]
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off set enable_bitmapscan = off
  set jit = off
as $$
#variable_conflict use_column
declare
  figures  record;      -- what the limits say
  had      record;
  is_known boolean := false;
  found_   integer;
  free_    bigint;      -- under the limits that are not by key, and under any whose time has not come
  due_ms   float8;
  began    bigint;
  took     integer := 0;
  waiting  bigint[] := '{}';  -- lines in which more wait, for which there is no room
begin
  if cardinality(claim_keyed.freed) = 0
    and exists (select from queue.gate g where g.gate = any (claim_keyed.gates) and cardinality(g.lines) > 0)
  then
    -- Somebody waits already. It may be that nothing has changed: that can be seen without the gates.
    had := queue.choose_under_keys(
      claim_keyed.lanes, claim_keyed.begins, claim_keyed.in_lines, claim_keyed.mosts, 1, claim_keyed.most, claim_keyed.gates, claim_keyed.permits);
    if cardinality(had.ats) = 0 and cardinality(had.passed) > 0 then
      select k.is_known, k.wait_ms into is_known, due_ms from queue.known_full(claim_keyed.gates, claim_keyed.permits, had.passed) k;
    end if;
    if is_known then
      return query select l.lane, null::bigint, l.line, null::bigint, null::bigint, null::smallint, null::smallint, null::text, null::float8,
        null::bigint, null::bigint, null::bigint[]
      from unnest(claim_keyed.lanes, claim_keyed.in_lines, had.reached) l (lane, in_lines, line) where l.in_lines;
      closed := case when had.complete then 'lines' else 'more' end;
      wait_ms := due_ms;
      return next;
      return;
    end if;
  end if;
  perform from queue.gate g where g.gate = any (claim_keyed.gates) order by g.gate for update;
  get diagnostics found_ = row_count;
  if found_ < cardinality(claim_keyed.gates) then
    closed := 'gone';
    return next;
    return;
  end if;
  if cardinality(claim_keyed.freed) > 0 then
    perform queue.read_keyed(claim_keyed.gates, claim_keyed.permits, claim_keyed.freed);
  end if;
  select bool_or(g.adopted < b.number) as is_new, bool_or(not b.keyed or g.not_before > clock_timestamp()) as in_all,
    bool_or(g.wanted and not b.keyed) as wanted, bool_or(cardinality(g.lines) > 0) as noted,
    -- No more of a key at a time than it may have at once, nor so many that others wait for them.
    greatest(1, least(5, min(least(b.concurrency, b.starts, b.burst)) filter (where b.keyed))) as quantum,
    case when min(b.within_ms) is not null then greatest(min(b.within_ms), claim_keyed.slack_ms) end as within,
    array_agg((
      select h.place from queue.permit h
      where h.gate = g.gate and h.place >= coalesce(claim_keyed.permits[array_position(claim_keyed.gates, g.gate)], 0)
      order by h.place
      limit 1
    ) order by array_position(claim_keyed.gates, g.gate)) as lowest
  into figures
  from queue.bound_in_force b
  join queue.gate g on g.gate = b.gate
  where b.gate = any (claim_keyed.gates);
  if figures.is_new and not queue.adopt(claim_keyed.gates) then
    closed := 'unknown';
    return next;
    return;
  end if;
  for attempt in 1..2 loop
    free_ := claim_keyed.most;
    if figures.in_all then
      free_ := least(free_, (select min(r.free) from queue.room(claim_keyed.gates, claim_keyed.permits) r));
    end if;
    had := queue.choose_under_keys(claim_keyed.lanes, claim_keyed.begins, claim_keyed.in_lines, claim_keyed.mosts, figures.quantum,
      free_::integer, claim_keyed.gates, claim_keyed.permits);
    exit when attempt = 2 or cardinality(had.ats) >= claim_keyed.most or (free_ >= claim_keyed.most and cardinality(had.passed) = 0);
    -- What others ended and told nobody: once a second, by whoever is short of permits first.
    update queue.gate g set read_at = clock_timestamp()
    where g.gate = any (claim_keyed.gates) and g.read_at < clock_timestamp() - interval '1 s';
    exit when not found;
    perform queue.read_keyed(claim_keyed.gates, claim_keyed.permits, null);
  end loop;
  began := queue.clock_ms();
  permit_floors := figures.lowest;
  if cardinality(had.ats) > 0 then
    if array_position(permit_floors, null) is not null then
      permit_floors := queue.permit_floors(permit_floors);
    end if;
    return query
    with picked as materialized (
      select p.at, (had.lines)[p.turn] as line, p.turn from queue.in_turn(had.ats) p
    ), taken as materialized (
      delete from queue.ready
      where ctid = any (had.ats)
        and exists (select from queue.worker w where w.id = claim_keyed.worker and w.expires_at > now())
        and not exists (
          select from queue.gate g join queue.bound_in_force b on b.gate = g.gate where g.gate = any (claim_keyed.gates) and g.adopted < b.number
        )
      returning ctid as at, case when line is null then lane else queue.twin_of(lane) end as lane, line, seq, id,
        least(attempts + 1, 32767)::smallint as attempts, crashes
    ), of_key as materialized (
      select t.lane, p.turn, t.line as stands, p.line, t.seq, t.id, t.attempts, t.crashes
      from taken t
      join picked p on p.at = t.at
      order by t.id
    ), leased as (
      insert into queue.lease (token, worker, lane, ids, attempts, crashes)
      select claim_keyed.token, claim_keyed.worker, case when min(k.lane) = max(k.lane) then min(k.lane) end, array_agg(k.id),
        array_agg(k.attempts), array_agg(k.crashes)
      from of_key k
      having count(*) > 0
    ), noted as (
      insert into queue.permit (gate, token, n, ids, lines)
      select b.gate, claim_keyed.token, c.n, case when b.keyed then c.ids end, case when b.keyed then c.lines end
      from (select count(*) as n, array_agg(k.id) as ids, array_agg(k.line) as lines from of_key k) c
      cross join queue.bound_in_force b
      where c.n > 0 and b.gate = any (claim_keyed.gates)
    )
    select k.lane, k.turn, k.stands, k.seq, k.id, k.attempts, k.crashes, null::text, null::float8, null::bigint, null::bigint, null::bigint[]
    from of_key k;
    get diagnostics took = row_count;
  end if;
  if took > 0 and figures.within is not null then
    perform queue.count_starts(claim_keyed.gates, had.lines, began + figures.within);
  end if;
  return query select l.lane, null::bigint, l.line, null::bigint, null::bigint, null::smallint, null::smallint, null::text, null::float8,
    null::bigint, null::bigint, null::bigint[]
  from unnest(claim_keyed.lanes, claim_keyed.in_lines, had.reached) l (lane, in_lines, line) where l.in_lines;
  if took = 0 and cardinality(had.ats) > 0 then
    -- Nothing was taken though there was room: a limit means something else by now, or this worker lives no more.
    closed := 'unknown';
  elsif free_ < claim_keyed.most and cardinality(had.ats) >= free_ then
    select max(r.wait_ms) into due_ms from queue.room(claim_keyed.gates, claim_keyed.permits) r where r.free <= 0;
    update queue.gate g set wanted = true
    from queue.room(claim_keyed.gates, claim_keyed.permits) r
    where g.gate = r.gate and not g.wanted and r.free <= 0 and r.wait_ms is null;
    closed := case when due_ms is null then 'full' else 'rate' end;
  elsif took < claim_keyed.most then
    waiting := had.passed;
    if had.complete then
      select coalesce(array_agg(w.line), '{}'), min(w.wait_ms) into waiting, due_ms
      from queue.lines_waiting(claim_keyed.gates, claim_keyed.permits, claim_keyed.lanes, claim_keyed.in_lines, had.lines, had.passed) w;
    end if;
    closed := case when not had.complete then 'more' when cardinality(waiting) > 0 then 'lines' end;
  end if;
  if figures.wanted then
    perform queue.tell_of_room(claim_keyed.gates, claim_keyed.permits);
  end if;
  if figures.noted or cardinality(waiting) > 0 then
    perform queue.tell_of_keys(claim_keyed.gates, claim_keyed.permits, waiting);
  end if;
  if figures.is_new or took = 0 then
    permit_floors := null;
  elsif random() < 0.01 then
    perform queue.move_permits(claim_keyed.gates, permit_floors);
  end if;
  wait_ms := due_ms;
  at_ms := began;
  within_ms := figures.within;
  return next;
end
$$;
