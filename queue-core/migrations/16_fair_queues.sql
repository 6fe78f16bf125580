-- Fair queueing. Jobs with a fairness key wait in fair queues (`fair_id`), one for each key, and workers serve the fair queues in turn.
-- Therefore jobs of one key do not delay jobs of other keys.
--
--   insert_unkeyed, insert_with   nothing -> ready, in a fair queue    by the producer
--   move_to_fair_lanes            ready -> ready, in a fair queue      by any worker: retried, promoted or unblocked jobs
--   claim_fair                    ready, in a fair queue -> lease      by a worker
--
-- Each plain lane has a paired fair lane, which contains the fair queues. The entries of a fair queue are ordinary entries of ready. An
-- entry's position is never the job's id, so a lookup by job finds the entry in the index of moved entries. Jobs in the plain lane have
-- not been assigned to a fair queue yet. Leases, verdicts and history refer only to the plain lane.

-- Returns the number of the fair queue of a fairness key. The number is a hash of the key, so keys of any length cost the same. Fair
-- queue 0 contains the jobs without a key.
create function queue.fair_id_of(fair text) returns bigint
  language sql immutable strict parallel safe
  return queue.hash(fair);

-- Creates the fair lane of a plain lane unless the fair lane's row is visible. Returns the fair lane, or null if the plain lane does not
-- exist.
create function queue.ensure_fair_lane(lane bigint) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (
    select queue.ensure_lane(l.queue, l.job_type, l.priority, false, true)
    from queue.lane l
    where l.lane = ensure_fair_lane.lane
    limit 1
  );
end
$$;

-- Enqueues one job without an ordering key, but with a fairness key or `system` attributes. queue.enqueue_with calls the function after
-- checking the options and the queue's capacity.
create function queue.insert_unkeyed(
  job_type text, payload jsonb, queue text, priority integer, max_attempts integer, run_at timestamptz, fair text, meta jsonb,
  system jsonb
) returns bigint
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  plain   bigint := queue.lane_id(insert_unkeyed.queue, insert_unkeyed.job_type, insert_unkeyed.priority, false);
  new_id  bigint := queue.next_id();
begin
  if plain is null then
    raise null_value_not_allowed using message = 'queue.enqueue: the job type may not be null';
  end if;
  perform queue.check_payload(insert_unkeyed.payload);
  perform queue.check_run_at(insert_unkeyed.run_at);
  insert into queue.job (id, lane, max_attempts, payload, meta, system, fair_id)
  values (new_id, plain, insert_unkeyed.max_attempts, insert_unkeyed.payload, insert_unkeyed.meta, insert_unkeyed.system,
    queue.fair_id_of(insert_unkeyed.fair));
  perform queue.ensure_lane(insert_unkeyed.queue, insert_unkeyed.job_type, insert_unkeyed.priority, false);
  if run_at > clock_timestamp() then
    insert into queue.scheduled (run_at, id, lane) values (insert_unkeyed.run_at, new_id, plain);
  elsif insert_unkeyed.fair is null then
    insert into queue.ready (lane, seq, id) values (plain, new_id, new_id);
  else
    insert into queue.ready (lane, seq, id, fair_id)
    values (queue.ensure_fair_lane(plain), queue.next_id(), new_id, queue.fair_id_of(insert_unkeyed.fair));
  end if;
  perform queue.wake(insert_unkeyed.queue);
  return new_id;
end
$$;

-- Weights of fairness keys. For each served job of a key with the default weight 1, n jobs of a key with weight n are served.
create table queue.weight (
  job_type  text     not null,
  fair_id   bigint   not null,
  fair      text     not null,
  weight    integer  not null,
  constraint weight_pkey primary key (job_type, fair_id),
  constraint weight_job_type_is_a_name check (queue.is_name(job_type)),
  constraint weight_fair_id_is_its_hash check (fair_id = queue.fair_id_of(fair)),
  constraint weight_in_range check (weight between 1 and 1000)
);

-- Sets the weight of a fairness key relative to the other keys of its job type, from the next claim on. A null weight removes the setting.
create function queue.set_weight(job_type text, fair text, weight integer) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if set_weight.weight is null then
    delete from queue.weight w
    where w.job_type = set_weight.job_type and w.fair_id = queue.fair_id_of(set_weight.fair);
  else
    insert into queue.weight as w (job_type, fair_id, fair, weight)
    values (set_weight.job_type, queue.fair_id_of(set_weight.fair), set_weight.fair, set_weight.weight)
    on conflict on constraint weight_pkey do update set weight = excluded.weight;
  end if;
end
$$;

-- Locks and returns up to `most` entries in the fair queues of a plain lane, in service order, as candidates for a claim. The search starts
-- with the lowest fair queue above `after`, continues in ascending order, and wraps around after the highest fair queue. In each turn, a
-- fair queue gets `quantum` * weight jobs. If there are too few fair queues for `most` jobs, the fair queues share the remaining capacity.
-- The next claim continues after the fair queue of the last entry.
--
-- One index probe finds a fair queue and its first entry, and only the first entries of a fair queue are read. The cost therefore depends
-- on the number of fair queues found, not on the number of jobs queued in them. Never waits: skips entries locked by other sessions. The
-- entries are only candidates: a job belongs to the session that deletes its entry in the same transaction.
create function queue.choose_fair(lane bigint, after bigint, quantum integer, most integer) returns table (at tid, fair_id bigint)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  twin      bigint := queue.paired_lane(choose_fair.lane);
  wanted    integer := (choose_fair.most + choose_fair.quantum - 1) / choose_fair.quantum;
  room      integer := choose_fair.most;
  share     integer := 0;
  fair_ids  bigint[];
  firsts    tid[];
  begun     bigint[];    -- last position taken in each fair queue
  weights   integer[];
  had       record;
begin
  select coalesce(array_agg(f.fair_id), '{}'), array_agg(f.at)
  into fair_ids, firsts
  from (
    with recursive found (fair_id, at) as (
      (select r.fair_id, r.ctid from queue.ready r where r.lane = twin and r.fair_id > choose_fair.after order by r.fair_id, r.seq limit 1)
      union all
      select n.fair_id, n.ctid
      from found f
      cross join lateral (
        select r.fair_id, r.ctid from queue.ready r where r.lane = twin and r.fair_id > f.fair_id order by r.fair_id, r.seq limit 1
      ) n
    )
    select f.fair_id, f.at from found f limit wanted
  ) f;
  if cardinality(fair_ids) < wanted then
    select fair_ids || coalesce(array_agg(f.fair_id), '{}'), firsts || array_agg(f.at)
    into fair_ids, firsts
    from (
      with recursive found (fair_id, at) as (
        (select r.fair_id, r.ctid from queue.ready r where r.lane = twin and r.fair_id <= choose_fair.after order by r.fair_id, r.seq limit 1)
        union all
        select n.fair_id, n.ctid
        from found f
        cross join lateral (
          select r.fair_id, r.ctid
          from queue.ready r
          where r.lane = twin and r.fair_id > f.fair_id and r.fair_id <= choose_fair.after
          order by r.fair_id, r.seq
          limit 1
        ) n
      )
      select f.fair_id, f.at from found f limit wanted - cardinality(fair_ids)
    ) f;
  end if;
  begun := array_fill(0::bigint, array[cardinality(fair_ids)]);
  weights := array_fill(1, array[cardinality(fair_ids)]);
  if exists (select from queue.weight) then
    weights := array(
      select coalesce(w.weight, 1)
      from unnest(fair_ids) with ordinality k (fair_id, place)
      left join queue.weight w on w.fair_id = k.fair_id
        and w.job_type = (select queue.type_of(l.job_type) from queue.lane l where l.lane = choose_fair.lane limit 1)
      order by k.place
    );
  end if;
  -- If there are as many fair queues as requested jobs and all weights are 1, takes the first entry of each fair queue by its ctid. A
  -- ctid stays valid for the calling statement, unless another session has locked or deleted the row.
  if cardinality(fair_ids) = choose_fair.most and 1 = all (weights) then
    perform from queue.ready r where r.ctid = any (firsts) for update skip locked;
    get diagnostics share = row_count;
    if share = choose_fair.most then
      return query select u.at, u.fair_id from unnest(firsts, fair_ids) u (at, fair_id);
      return;
    end if;
    share := 0;
  end if;
  for round in 1 .. 8 loop
    exit when cardinality(fair_ids) = 0;
    -- Once all fair queues have been found, they share the remaining capacity. In the last round, a single fair queue may get all
    -- remaining capacity.
    if round = 8 then
      share := room;
    elsif round > 1 or cardinality(fair_ids) < wanted then
      share := ceil(room::numeric / (select sum(w) from unnest(weights) w));
    end if;
    select array_agg(t.at order by t.turn, t.place, t.seq) as ats, array_agg(t.fair_id order by t.turn, t.place, t.seq) as fair_ids,
      array_agg(t.place order by t.turn, t.place, t.seq) as places, array_agg(t.seq order by t.turn, t.place, t.seq) as seqs,
      count(*)::integer as count
    into had
    from (
      select p.at, p.seq, k.fair_id, k.place,
        (row_number() over (partition by k.place order by p.seq) - 1) / (choose_fair.quantum * k.weight) as turn
      from unnest(fair_ids, begun, weights) with ordinality k (fair_id, begun, weight, place)
      cross join lateral (
        select r.ctid as at, r.seq
        from queue.ready r
        -- The condition is a range over one fair queue instead of `=`, so that no plan scans the positions of the whole lane.
        where r.lane = twin and r.fair_id >= k.fair_id and r.fair_id <= k.fair_id and r.seq > k.begun
        order by r.fair_id, r.seq
        limit greatest(choose_fair.quantum, share) * k.weight
        for update skip locked
      ) p
    ) t;
    exit when had.count = 0;
    return query
    select u.at, u.fair_id
    from unnest(had.ats, had.fair_ids) with ordinality u (at, fair_id, nth)
    where u.nth <= least(had.count, room)
    order by u.nth;
    room := room - had.count;
    exit when room <= 0;
    select array_agg(n.fair_id order by n.place), array_agg(n.seq order by n.place), array_agg(n.weight order by n.place)
    into fair_ids, begun, weights
    from (
      select h.fair_id, h.place, max(h.seq) as seq, weights[h.place] as weight
      from unnest(had.fair_ids, had.places, had.seqs) h (fair_id, place, seq)
      group by h.fair_id, h.place
      having count(*) >= greatest(choose_fair.quantum, share) * weights[h.place]
    ) n;
    exit when fair_ids is null;
  end loop;
end
$$;

-- Returns each entry in `ats` with its position in the array. Iterates over a series instead of the array, because the planner assumes
-- that any array has ten elements. With that estimate, the plan would compare every pair of 500 entries, which takes 24 ms.
create function queue.in_turn(ats tid[]) returns table (at tid, turn bigint)
  language sql immutable
begin atomic
  select in_turn.ats[n], n::bigint from generate_series(1, cardinality(in_turn.ats)) n;
end;

-- ready, in fair queues -> lease: claims up to `most` jobs of the plain lanes in `lanes`, in the order of the lanes. `mosts` contains the
-- maximum number of jobs for each lane. `afters` contains the fair queue after which each lane continues. Returns each job with its
-- position in the claim, its plain lane, its fair queue, and its position in the fair queue.
--
-- The function counts the attempt, as in claim.sql. The function also reads the payloads, because the caller's older snapshot may not
-- contain a job that was committed concurrently. Payloads of more than `largest` bytes are returned as null. Safe: entries are locked and
-- skipped as in choose_fair, and deleted in the next statement of the same transaction, so two claims never take the same job. A worker
-- whose heartbeat has expired takes no jobs.
create function queue.claim_fair(
  token uuid, worker uuid, lanes bigint[], afters bigint[], mosts integer[], most integer, largest integer, quantum integer default 1
)
  returns table (
    place bigint, lane bigint, id bigint, attempts smallint, crashes smallint, fair_id bigint, seq bigint,
    max_attempts smallint, payload text, key bigint, meta text, system text
  )
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  chosen  tid[] := '{}';
  one     record;
begin
  for one in
    select l.lane, l.after, l.most
    from unnest(lanes, afters, mosts) with ordinality l (lane, after, most, nth)
    order by l.nth
  loop
    exit when cardinality(chosen) >= claim_fair.most;
    chosen := chosen || array(
      select c.at from queue.choose_fair(one.lane, one.after, claim_fair.quantum, least(one.most, claim_fair.most - cardinality(chosen))) c
    );
  end loop;
  if cardinality(chosen) = 0 then
    return;
  end if;
  return query
  with taken as materialized (
    delete from queue.ready r
    where r.ctid = any (chosen)
      and exists (select from queue.worker w where w.id = claim_fair.worker and w.expires_at > now())
    returning r.ctid as at, queue.paired_lane(r.lane) as lane, r.seq, r.id, r.fair_id,
      least(r.attempts + 1, 32767)::smallint as attempts, r.crashes
  ), leased as (
    insert into queue.lease (token, worker, lane, ids, attempts, crashes)
    select claim_fair.token, claim_fair.worker, case when min(t.lane) = max(t.lane) then min(t.lane) end,
      array_agg(t.id), array_agg(t.attempts), array_agg(t.crashes)
    from (select * from taken order by id) t
    having count(*) > 0
  )
  select p.turn, t.lane, t.id, t.attempts, t.crashes, t.fair_id, t.seq, j.max_attempts,
    case when octet_length(j.payload) <= claim_fair.largest then j.payload end, j.key, j.meta, j.system
  from queue.in_turn(chosen) p
  join taken t on t.at = p.at
  left join lateral (
    select j.max_attempts, j.payload::text as payload, j.key, j.meta::text as meta, j.system::text as system
    from queue.job j
    where j.id = t.id offset 0
  ) j on true
  order by p.turn;
end
$$;
