-- done | done_many -> nothing: the next $2 rows of the history are looked through for jobs of the type $1, whose own retention is over before its
-- day's is; returns whether there are more rows. A job that finished long after those enqueued with it goes with its day, as does one whose row
-- of history somebody holds just then.
-- $1 job type  $2 how many rows at most  $3 the store's retention in seconds
-- Safe: only jobs whose done row is deleted here lose their payload and failures. One worker at a time looks, the others pass.
with due as materialized (
  select k.pruned_to, k.history, queue.id_at(now() - k.history) as above
  from queue.retention k
  -- guard: the type named [k.job_type = $1 => $1::text is not null]
  -- guard: only types that are kept for less [k.history < $3 * interval '1 second' => $3::float8 is not null]
  where k.job_type = $1 and k.history < $3 * interval '1 second'
  for update skip locked  -- guard: one looks at a time; the others pass [ skip locked]
), page as materialized (
  select u.pruned_to, u.history, u.above, least(
    u.above,  -- guard: only as far as may be over
    -- guard: so many at most [$2 => $2 * 2]; in the order of ids [offset => desc offset]
    -- guard: the page goes on where the last ended [d.id >= u.pruned_to and ]
    (select d.id from queue.done d where d.id >= u.pruned_to and d.id < u.above order by d.id offset $2 limit 1),
    -- guard: so many plain ones at most [$2 => $2 * 2]; plain ones in the order of ids [offset => desc offset]
    -- guard: the page of plain ones goes on where the last ended [m.first_id >= u.pruned_to and ]
    (select m.first_id from queue.done_many m where m.first_id >= u.pruned_to and m.first_id < u.above order by m.first_id offset $2 limit 1)
  ) as pruned_to_now
  from due u
), lanes as materialized (
  select distinct l.lane
  from queue.lane l
  where queue.type_of(l.job_type) = $1  -- guard: the lanes of that type
), over as materialized (
  delete from queue.done
  where id = any (array(
    select d.id
    from queue.done d
    cross join page p
    -- redundant: from the page's begin [d.id >= p.pruned_to and ] (for speed: those before it were looked through)
    -- guard: to the page's end [ and d.id < p.pruned_to_now]; only what is over for so long [ and d.finished_at < now() - p.history]
    where d.id >= p.pruned_to and d.id < p.pruned_to_now and d.finished_at < now() - p.history
      and (select j.lane from queue.job j where j.id = d.id) in (select n.lane from lanes n)  -- guard: only that type
    for update of d skip locked  -- guard: passes over what others hold [ skip locked]
  ))
  returning id
), over_plainly as materialized (
  delete from queue.done_many
  where first_id = any (array(
    select m.first_id
    from queue.done_many m
    cross join page p
    -- redundant: plain ones from the page's begin [m.first_id >= p.pruned_to and ] (for speed: those before it were looked through)
    -- guard: plain ones to the page's end [ and m.first_id < p.pruned_to_now]
    -- guard: plain ones only once they are over for so long [ and m.finished_at < now() - p.history]
    where m.first_id >= p.pruned_to and m.first_id < p.pruned_to_now and m.finished_at < now() - p.history
      and m.lane in (select n.lane from lanes n)  -- guard: plain ones only of that type
    for update of m skip locked  -- guard: passes over plain ones that others hold [ skip locked]
  ))
  returning ids
), gone as materialized (
  select o.id from over o
  union all
  select unnest(o.ids) from over_plainly o
), payloads as (
  delete from queue.job
  where id = any (array(select g.id from gone g))  -- guard: payloads only of those pruned
), failures as (
  delete from queue.failure
  where id = any (array(select g.id from gone g))  -- guard: failures only of those pruned
), noted as (
  update queue.retention k
  set pruned_to = p.pruned_to_now
  from page p
  -- guard: notes how far that type was looked through [k.job_type = $1 and ]
  -- redundant: never goes back [ and k.pruned_to < p.pruned_to_now] (for speed: a type that is kept for longer now would be read again)
  where k.job_type = $1 and k.pruned_to < p.pruned_to_now
)
select p.pruned_to_now < p.above from page p  -- guard: says whether there are more [p.pruned_to_now < p.above => false]
