-- Restarts of durable jobs: what a job does instead of growing without end.
--
--   lease -> ready | done, cancelled   by the holder (restart): the same job, with another payload and an empty journal

-- Begins these jobs anew, which their leases have: each has this payload from now on, is of the type and version as stored, enters ready at the end
-- of its lane with no attempt and no crash, and has no steps, no children, no gathers and no progress. Its children and parts go on, and are
-- nobody's. Signals that were not received stay. Returns those that were refused. A door, as in 13_doors.sql: a worker writes no payload by hand.
-- Safe: fenced as a verdict is, under the locks on the leases, in the order of their tokens; a zombie changes nothing, and said twice, the second is
-- refused. Whoever journals, receives or spawns holds a lock on the lease until its commit: so what is deleted is looked for by the next statement,
-- whose snapshot is newer than all that was committed under these leases. To be called under read committed. One that was cancelled is cancelled,
-- and frees its ordering key.
create function queue.restart(tokens uuid[], jobs bigint[], attempts integer[], stored text[], payloads text[])
  returns table (token uuid, id bigint)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
declare
  lanes        bigint[];
  begun        bigint[];
  refused      uuid[];
  refused_ids  bigint[];
begin
  perform from queue.lease l
  where l.token = any (restart.tokens)
  order by l.token
  for update;
  with said as materialized (
    select s.*
    from unnest(restart.tokens, restart.jobs, restart.attempts, restart.stored, restart.payloads) s (token, id, attempts, stored, payload)
  ), listed as materialized (
    select l.token, u.id, u.attempts, u.crashes, u.place, u.id = any (l.cancelling) is true as cancelling
    from queue.lease l
    cross join lateral rows from (unnest(l.ids), unnest(l.attempts), unnest(l.crashes)) with ordinality u (id, attempts, crashes, place)
    where l.token = any (restart.tokens)
  ), fenced as materialized (
    select distinct on (l.token, l.id) l.token, l.id, s.attempts, s.stored, s.payload, l.cancelling
    from said s
    join listed l on l.token = s.token and l.id = s.id
  ), left_over as materialized (
    select l.token, array_agg(l.id order by l.place) as ids, array_agg(l.attempts order by l.place) as attempts,
      array_agg(l.crashes order by l.place) as crashes
    from listed l
    left join fenced f on f.token = l.token and f.id = l.id
    where f.id is null
    group by l.token
  ), ended as (
    delete from queue.lease l
    where l.token = any (array(select f.token from fenced f except select o.token from left_over o))
  ), shrunk as (
    update queue.lease l
    set ids = o.ids, attempts = o.attempts, crashes = o.crashes
    from left_over o
    where l.token = any (array(select f.token from fenced f)) and l.token = o.token
  ), anew as materialized (
    select f.id, f.payload::jsonb as payload,
      case when l.job_type = f.stored then j.lane else queue.meet_lane(l.queue, f.stored, l.priority, false) end as lane
    from fenced f
    cross join lateral (select j.lane from queue.job j where j.id = f.id offset 0) j
    cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
    where not f.cancelling
  ), replaced as (
    update queue.job j
    set payload = a.payload, lane = a.lane, system = nullif(j.system - 'expires_at', '{}')
    from anew a
    where j.id = a.id
  ), entered as (
    insert into queue.ready (lane, seq, id)
    select a.lane, queue.next_id(), a.id
    from anew a
  ), undone as (
    delete from queue.step s
    where s.id = any (array(select a.id from anew a))
  ), forgotten as (
    delete from queue.progress p
    where p.id = any (array(select a.id from anew a))
  ), finished as (
    insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
    select f.id, statement_timestamp(), 0, f.attempts, true
    from fenced f
    where f.cancelling
  ), freed as (
    delete from queue.active_key
    where ctid = any (array(
      select (select k.ctid from queue.active_key k where k.key = (select j.key from queue.job j where j.id = f.id) and k.id = f.id)
      from fenced f
      where f.cancelling
    ))
    returning active_key.key, active_key.seq
  ), key_hinted as (
    insert into queue.key_hint (key, after)
    select r.key, r.seq
    from freed r
  )
  select (select array_agg(distinct a.lane) from anew a), (select array_agg(a.id) from anew a), array_agg(s.token), array_agg(s.id)
  into lanes, begun, refused, refused_ids
  from said s
  where not exists (select from fenced f where f.token = s.token and f.id = s.id);
  perform queue.forget_children(begun);
  perform queue.forget_gathers(begun);
  perform queue.wake(q.queue)
  from (
    select distinct l.queue
    from unnest(lanes) n (lane)
    cross join lateral (select l.queue from queue.lane l where l.lane = n.lane limit 1) l
  ) q;
  return query select r.token, r.id from unnest(refused, refused_ids) r (token, id);
end
$$;
