-- Which jobs a claim under limits by key takes. What such limits are is in 21_keyed.sql, and the claim in 23_keyed_claim.sql.

--
-- Whoever claims locks the gates first, and then looks for lines: what each has room for is known while they are looked at, so that nothing is
-- locked or read of a line that has none. All of it is done for all lines at once: no statement is of one line.

-- Reads leases again, as queue.read_permits, those of limits by key too: a job that its lease lists no more holds no permit of its line.
create function queue.read_keyed(gates bigint[], floors bigint[], tokens uuid[]) returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with still as materialized (
    select h.gate, h.place, h.n, h.ids, h.lines, l.ids as listed
    from unnest(read_keyed.gates, read_keyed.floors) f (gate, floor)
    join queue.permit h on h.gate = f.gate
      and h.place >= coalesce(f.floor, 0)
    left join lateral (select l.ids from queue.lease l where l.token = h.token offset 0) l on true
    where read_keyed.tokens is null or h.token = any (read_keyed.tokens)
  ), gone as (
    delete from queue.permit h using still s
    where h.gate = s.gate and h.place = s.place
      and s.listed is null
  ), shrunk as materialized (
    select s.gate, s.place, k.n, k.ids, k.lines
    from still s
    cross join lateral (
      select count(*) as n, array_agg(u.id) filter (where s.ids is not null) as ids, array_agg(u.line) filter (where s.ids is not null) as lines
      from unnest(coalesce(s.ids, s.listed), s.lines) u (id, line)
      join unnest(s.listed) o (id) on o.id = u.id
    ) k
    where cardinality(s.listed) <> s.n
  )
  update queue.permit h set n = k.n, ids = k.ids, lines = k.lines from shrunk k
  where h.gate = k.gate and h.place = k.place
    and k.n < h.n;
end
$$;

-- Entries of the lines of a plain lane, locked, in the order of their turns as queue.choose_lines says: of each line no more than it has room for.
-- Only for who has the gates locked: then there is as much room until it ends. taken: lines of what it takes of other lanes.
--
-- It looks at lines from the one after `after` on, and then from the lowest on, until it has enough; at about 2,500 that have no room at most, and
-- if all of them had none, at what has come last, so that a new key does not wait for others' turns to be passed over.
-- Returns the entries with their lines; a hundred of the lines that had no room; how far it has come; and whether it has looked at all lines, and
-- found no entry that it left.
create function queue.choose_keyed(
  lane bigint, after bigint, quantum integer, most integer, gates bigint[], floors bigint[], taken bigint[],
  out ats tid[], out lines bigint[], out passed bigint[], out reached bigint, out complete boolean
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  twin      bigint := queue.twin_of(choose_keyed.lane);
  now_ms    bigint := queue.clock_ms();
  -- Whether some lines have more turns than others: then of which type.
  weighted  text := (
    select queue.type_of(l.job_type) from queue.lane l where l.lane = choose_keyed.lane and exists (select from queue.weight) limit 1
  );
  -- Whether something was said of any key.
  is_said   boolean := exists (select from queue.key_bound);
  first     bigint := choose_keyed.after;  -- lines above this
  edge      bigint := 9223372036854775807;
  wraps     boolean := true;               -- those up to `after` are still to come
  wanted    integer;
  sight     integer;
  used      integer := 0;                  -- lines that were taken from
  had       record;
  d_lines   bigint[] := '{}';              -- lines that may have more than a turn's jobs: with their room, and their weights
  d_free    bigint[] := '{}';
  d_weights integer[] := '{}';
  share     integer;
begin
  ats := '{}';
  lines := '{}';
  passed := '{}';
  reached := choose_keyed.after;
  for round in 1..7 loop
    exit when round = 7 and cardinality(ats) > 0;
    -- As many lines as have enough, if each has as much as those before; and later more, should many have no room.
    wanted := greatest(1, ceil((choose_keyed.most - cardinality(ats)) / case
      when used = 0 then choose_keyed.quantum else greatest(1, cardinality(ats)::float8 / used) end));
    sight := case when round = 1 then wanted else greatest(500, wanted) end;
    with recursive b as materialized (
      select b.gate, b.name, b.concurrency, b.starts, b.period_ms, b.burst, f.floor
      from unnest(choose_keyed.gates, choose_keyed.floors) f (gate, floor)
      join queue.bound_in_force b on b.gate = f.gate and b.keyed
    ), near as materialized (
      -- Where lines are short they are read as they stand: two entries cost less than a probe.
      select distinct on (n.line) n.line, n.at
      from (
        select r.line, r.seq, r.ctid as at
        from queue.ready r
        where r.lane = twin and r.line > first and r.line <= edge and round < 7
        order by r.line, r.seq
        limit 2 * sight
      ) n
      order by n.line, n.seq
      limit sight
    ), far (line, at) as (
      -- And where they are long, by a probe each.
      (
        select r.line, r.ctid
        from queue.ready r
        where r.lane = twin and r.line > (select max(n.line) from near n) and r.line <= edge and (select count(*) from near) < sight
        order by r.line, r.seq
        limit 1
      )
      union all
      select n.line, n.ctid
      from far f
      cross join lateral (
        select r.line, r.ctid from queue.ready r where r.lane = twin and r.line > f.line and r.line <= edge order by r.line, r.seq limit 1
      ) n
    ), late as materialized (
      select distinct n.line
      from (select r.line from queue.ready r where r.lane = twin and round = 7 order by r.seq desc limit 500) n
    ), found as materialized (
      select n.line, n.at from near n
      union all
      select l.line, null from late l
      union all
      (select f.line, f.at from far f limit sight - (select count(*) from near))
    ), held as materialized (
      select h.gate, h.line, count(*) as n, count(*) filter (where h.is_taken) as taken
      from (
        select b.gate, u.line, false as is_taken
        from b
        join queue.permit h on h.gate = b.gate
          and h.place >= coalesce(b.floor, 0)
        cross join lateral unnest(h.lines) u (line)
        union all
        select b.gate, u.line, true from b cross join unnest(choose_keyed.taken) u (line)
      ) h
      -- A case is looked up by its hash, whatever the planner thinks of how many there are.
      where case when h.line in (select f.line from found f) then true end
      group by h.gate, h.line
    ), vacant as materialized (
      select f.line, min(f.at) as at,
        min(least(coalesce(k.concurrency, b.concurrency) - coalesce(h.n, 0),
          coalesce(w.free, least(b.starts, b.burst)) - coalesce(h.taken, 0))) as free
      from found f
      cross join b
      left join held h on h.gate = b.gate and h.line = f.line
      left join queue.key_bound k on is_said and k.name = b.name and k.line = f.line
      left join lateral (
        -- As queue.starts_since says, but that it looks for the first only if there is one before the last.
        select least(
          b.starts - l.total + case when l.total > l.n then (
            select r.total - r.n from queue.rate r
            where r.gate = b.gate and r.line = f.line and r.at_ms > now_ms - b.period_ms order by r.at_ms limit 1
          ) else 0 end,
          case when b.burst is not null then b.burst - coalesce(l.total - (
            select r.total - r.n from queue.rate r
            where r.gate = b.gate and r.line = f.line and r.at_ms > now_ms - b.period_ms * b.burst / b.starts order by r.at_ms limit 1
          ), 0) end
        ) as free
        from (
          select r.total, r.n
          from queue.rate r
          where r.gate = b.gate and r.line = f.line and r.at_ms > now_ms - b.period_ms and b.starts is not null
          order by r.at_ms desc
          limit 1
        ) l
      ) w on true
      group by f.line
    ), able as materialized (
      select r.line, r.at, r.free, case when weighted is null then 1 else
        coalesce((select w.weight from queue.weight w where w.job_type = weighted and w.line = r.line), 1) end as weight
      from vacant r
      where coalesce(r.free, 1) > 0
      order by r.line
      limit wanted
    ), one as materialized (
      -- One of each: those that were found first.
      select r.ctid as at, a.line
      from able a
      join queue.ready r on r.ctid = a.at
      where choose_keyed.quantum = 1 and weighted is null
      for update of r skip locked
    ), entry as materialized (
      select o.at, o.line from one o
      union all
      select p.at, a.line
      from able a
      cross join lateral (
        select r.ctid as at, r.seq
        from queue.ready r
        -- Not `=`: ordered by the line too, it is read by the index of lines whatever the planner thinks of how many entries this one has.
        where r.lane = twin and r.line >= a.line and r.line <= a.line
        order by r.line, r.seq
        limit least(a.free, choose_keyed.quantum * a.weight)
        for update skip locked
      ) p
      where not exists (select from one o where o.line = a.line)
      limit choose_keyed.most - cardinality(ats)
    )
    select e.ats, e.lines, a.able, a.deep, a.deep_free, a.deep_weights, f.found, f.last_found, a.last_able,
      array(select r.line from vacant r where r.free <= 0 limit 100) as passed
    into had
    from (select coalesce(array_agg(e.at), '{}') as ats, coalesce(array_agg(e.line), '{}') as lines from entry e) e
    cross join (
      select count(*) as able, max(a.line) as last_able, array_agg(a.line) filter (where a.is_deep) as deep,
        array_agg(a.free) filter (where a.is_deep) as deep_free, array_agg(a.weight) filter (where a.is_deep) as deep_weights
      from (select a.line, a.free, a.weight, coalesce(a.free, 1000000) > choose_keyed.quantum * a.weight as is_deep from able a) a
    ) a
    cross join (select count(*) as found, max(f.line) as last_found from found f) f;
    ats := ats || had.ats;
    lines := lines || had.lines;
    passed := (passed || had.passed)[1:100];
    exit when round = 7;
    d_lines := d_lines || had.deep;
    d_free := d_free || had.deep_free;
    d_weights := d_weights || had.deep_weights;
    if cardinality(ats) >= choose_keyed.most then
      reached := case when choose_keyed.quantum = 1 and weighted is null then had.last_able else lines[cardinality(lines)] end;
      complete := false;
      return;
    end if;
    reached := coalesce(case when had.able = wanted then had.last_able else had.last_found end, reached);
    used := used + had.able;
    first := reached;
    complete := had.found < sight and had.able < wanted;
    if complete then
      exit when not wraps;
      wraps := false;
      first := -9223372036854775808;
      edge := choose_keyed.after;
      complete := false;
    end if;
  end loop;
  if not complete or cardinality(d_lines) = 0 then
    return;
  end if;
  -- All lines are here: they share what is left of the room.
  share := choose_keyed.quantum + ceil((choose_keyed.most - cardinality(ats)) * 2.0 / (select sum(w) from unnest(d_weights) w));
  select coalesce(array_agg(t.at), '{}') as ats, coalesce(array_agg(t.line), '{}') as lines,
    coalesce(bool_or(t.nth = t.upto and t.has_more), false) as cut
  into had
  from (
    select p.at, k.line, k.upto, k.has_more, row_number() over (partition by k.place order by p.seq) + choose_keyed.quantum * k.weight as nth
    from (
      select d.line, d.weight, d.place, least(d.free, share * d.weight) as upto, share * d.weight < coalesce(d.free, 1000000) as has_more
      from unnest(d_lines, d_free, d_weights) with ordinality d (line, free, weight, place)
    ) k
    cross join lateral (
      select r.ctid as at, r.seq
      from queue.ready r
      where r.lane = twin and r.line >= k.line and r.line <= k.line
        -- Not by its number: an entry of an earlier place may have come meanwhile.
        and r.ctid <> all (choose_keyed.ats)
      order by r.line, r.seq
      limit k.upto - choose_keyed.quantum * k.weight
      for update skip locked
    ) p
    order by (row_number() over (partition by k.place order by p.seq) - 1) / (choose_keyed.quantum * k.weight), k.place, p.seq
    limit choose_keyed.most - cardinality(ats)
  ) t;
  ats := ats || had.ats;
  lines := lines || had.lines;
  complete := not had.cut;
end
$$;

-- The same of a lane whose jobs stand in no lines, from a place on: in the order of places, but past those whose keys have no room, among the first
-- thousand.
create function queue.choose_of_keys(
  lane bigint, start bigint, most integer, gates bigint[], floors bigint[], taken bigint[], out ats tid[], out lines bigint[], out passed bigint[]
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  with waiting as materialized (
    select w.at, w.seq, coalesce(j.line, 0) as line
    from (
      select r.ctid as at, r.seq, r.id
      from queue.ready r
      where r.lane = choose_of_keys.lane and r.seq >= choose_of_keys.start
      order by r.seq
      limit 1000
    ) w
    left join lateral (select j.line from queue.job j where j.id = w.id offset 0) j on true
  ), vacant as materialized (
    select r.line, min(r.free) - (select count(*) from unnest(choose_of_keys.taken) t (line) where t.line = r.line) as free
    from queue.line_room(choose_of_keys.gates, choose_of_keys.floors, array(select w.line from waiting w)) r
    group by r.line
  ), able as materialized (
    select p.at, p.line, p.seq
    from (select w.at, w.line, w.seq, row_number() over (partition by w.line order by w.seq) as nth from waiting w) p
    join vacant r on r.line = p.line
    where p.nth <= coalesce(r.free, p.nth)
  ), chosen as materialized (
    select r.ctid as at, a.line
    from able a
    join queue.ready r on r.ctid = a.at
    order by a.seq
    limit choose_of_keys.most
    for update of r skip locked
  )
  select coalesce(array_agg(c.at), '{}'), coalesce(array_agg(c.line), '{}'), (array(select r.line from vacant r where r.free <= 0 limit 100))
  into ats, lines, passed
  from chosen c;
end
$$;

-- The same of several lanes, in their order: no more of each than it says.
create function queue.choose_under_keys(
  lanes bigint[], begins bigint[], in_lines boolean[], mosts integer[], quantum integer, most integer, gates bigint[], floors bigint[],
  out ats tid[], out lines bigint[], out passed bigint[], out reached bigint[], out complete boolean
)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  room  integer;
  had   record;
begin
  ats := '{}';
  lines := '{}';
  passed := '{}';
  reached := begins;
  complete := true;
  for nth in 1..cardinality(lanes) loop
    room := least(mosts[nth], choose_under_keys.most - coalesce(cardinality(ats), 0));
    if room <= 0 then
      complete := false;
    elsif choose_under_keys.in_lines[nth] then
      had := queue.choose_keyed(lanes[nth], begins[nth], choose_under_keys.quantum, room, choose_under_keys.gates, choose_under_keys.floors, lines);
      ats := ats || had.ats;
      lines := lines || had.lines;
      passed := passed || had.passed;
      reached[nth] := had.reached;
      complete := complete and had.complete;
    else
      had := queue.choose_of_keys(lanes[nth], begins[nth], room, choose_under_keys.gates, choose_under_keys.floors, lines);
      ats := ats || had.ats;
      lines := lines || had.lines;
      passed := passed || had.passed;
    end if;
  end loop;
  passed := passed[1:100];
end
$$;
