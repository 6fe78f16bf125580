-- Jobs, the newest first, each once with its state.
-- $1 state, or null for any  $2 queue, or null  $3 job type, or null  $4 below this id  $5 how many at most
-- $6 how many rows of the history are looked at  $7 text in the error of a dead letter  $8 not more than so many seconds ago  $9 at least so many
-- seconds ago  $10 whether with payload and output
-- The ages are those of the end of a job that is over, else of its enqueue.
-- Costs at most one pass over what waits, runs or is dead. The history may be huge. Of done, when most of it may not be wanted, only the
-- newest $6 rows are looked at; of done_many as many, and only so many are opened as surely fill the page, with all that share their span of
-- 2^33 ids, for within a span rows overlap. `horizon` is the lowest id down to which this leaves nothing out: nothing older is listed, and the
-- next page goes on from there. Null: everything was looked at.
with span as materialized (
  select t.since, t.until,
    case when $8::float8 is null then 0 else queue.id_at(t.since) end as low,
    case when $9::float8 is null then 9223372036854775807 else queue.id_at(t.until) end as high
  from (
    select pg_catalog.now() - $8 * interval '1 second' as since, pg_catalog.now() - $9 * interval '1 second' as until
  ) t
), chosen as materialized (
  select l.lane
  from queue.lane l
  where ($2::text is null or l.queue = $2) and ($3::text is null or l.job_type = $3)
), plain as materialized (
  select m.first_id, m.lane
  from queue.done_many m
  where coalesce($1::text, 'completed') = 'completed' and m.first_id < $4
  order by m.first_id desc
  limit $6
), looked as materialized (
  select greatest(
    (select d.id
    from queue.done d
    where coalesce($1::text, 'completed') in ('completed', 'cancelled')
      and ($1::text = 'cancelled' or $2::text is not null or $3::text is not null)
      and d.id < $4
    order by d.id desc
    offset $6 - 1
    limit 1),
    (select (p.first_id >> 33) << 33 from plain p order by p.first_id desc offset $6 - 1 limit 1),
    (select (p.first_id >> 33) << 33
    from plain p
    where $2::text is null and $3::text is null or p.lane in (select c.lane from chosen c)
    order by p.first_id desc
    offset $5 - 1
    limit 1)
  ) as horizon
), page as materialized (
  select e.*
  from (
    (select r.id, 'ready' as state, r.attempts, r.crashes, null::timestamptz as run_at, null::timestamptz as finished_at, null::int as ran_ms,
      null::uuid as worker, null::text as error
    from queue.ready r
    where coalesce($1::text, 'ready') = 'ready' and $7::text is null
      and r.id >= (select w.low from span w) and r.id < (select w.high from span w)
      and r.id < $4 and r.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or r.lane in (select c.lane from chosen c))
    order by r.id desc
    limit $5)
    union all
    (select s.id, 'scheduled', s.attempts, s.crashes, s.run_at, null, null, null, null
    from queue.scheduled s
    where coalesce($1::text, 'scheduled') = 'scheduled' and $7::text is null
      and s.id >= (select w.low from span w) and s.id < (select w.high from span w)
      and s.id < $4 and s.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or s.lane in (select c.lane from chosen c))
    order by s.id desc
    limit $5)
    union all
    (select b.id, 'blocked', 0::smallint, 0::smallint, b.run_at, null, null, null, null
    from queue.blocked b
    where coalesce($1::text, 'blocked') = 'blocked' and $7::text is null
      and b.id >= (select w.low from span w) and b.id < (select w.high from span w)
      and b.id < $4 and b.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or b.lane in (select c.lane from chosen c))
    order by b.id desc
    limit $5)
    union all
    (select u.id, 'running', u.attempts, u.crashes, null, null, null, h.worker, null
    from queue.lease h
    cross join lateral rows from (pg_catalog.unnest(h.ids), pg_catalog.unnest(h.attempts), pg_catalog.unnest(h.crashes)) u (id, attempts, crashes)
    where coalesce($1::text, 'running') = 'running' and $7::text is null
      and u.id >= (select w.low from span w) and u.id < (select w.high from span w)
      and u.id < $4 and u.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or (select j.lane from queue.job j where j.id = u.id) in (select c.lane from chosen c))
    order by u.id desc
    limit $5)
    union all
    (select d.id, case when d.cancelled then 'cancelled' else 'completed' end, d.attempts, 0::smallint, null, d.finished_at, d.ran_ms, null, null
    from queue.done d
    where ($1::text is null or $1 = 'completed' and not d.cancelled or $1 = 'cancelled' and d.cancelled) and $7::text is null
      and ($8::float8 is null or d.finished_at > (select w.since from span w))
      and ($9::float8 is null or d.finished_at <= (select w.until from span w))
      and d.id < $4 and d.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or (select j.lane from queue.job j where j.id = d.id) in (select c.lane from chosen c))
    order by d.id desc
    limit $5)
    union all
    (select u.id, 'completed', 1::smallint, 0::smallint, null, m.finished_at, null, null, null
    from queue.done_many m
    cross join lateral pg_catalog.unnest(m.ids) u (id)
    where coalesce($1::text, 'completed') = 'completed' and $7::text is null
      and ($8::float8 is null or m.finished_at > (select w.since from span w))
      and ($9::float8 is null or m.finished_at <= (select w.until from span w))
      and m.first_id < $4 and m.first_id >= (select (coalesce(l.horizon, 0) >> 33) << 33 from looked l)
      and u.id < $4 and u.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or m.lane in (select c.lane from chosen c))
    order by u.id desc
    limit $5)
    union all
    (select d.id, 'dead', d.attempts, d.crashes, null, d.died_at, null, null, d.error
    from queue.dead d
    where coalesce($1::text, 'dead') = 'dead'
      and ($7::text is null or pg_catalog.strpos(d.error, $7) > 0)
      and ($8::float8 is null or d.died_at > (select w.since from span w))
      and ($9::float8 is null or d.died_at <= (select w.until from span w))
      and d.id < $4 and d.id >= (select coalesce(l.horizon, 0) from looked l)
      and ($2::text is null and $3::text is null or d.lane in (select c.lane from chosen c))
    order by d.id desc
    limit $5)
  ) e
  order by e.id desc
  limit $5
)
select k.horizon, p.id, l.queue, l.job_type, l.priority, p.state, p.attempts, j.max_attempts, p.crashes, p.run_at, p.finished_at, p.ran_ms,
  p.worker, false as called_off, pg_catalog.left(coalesce(p.error, f.error), 500) as error,
  case when $10 then (select d.output from queue.done d where d.id = p.id) end as output,
  case when $10 then j.payload end as payload
from looked k
left join page p on true
left join lateral (select j.lane, j.max_attempts, j.payload from queue.job j where j.id = p.id offset 0) j on true
left join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l on true
left join lateral (
  select f.error
  from queue.failure f
  where f.id = p.id and p.attempts > 0 and p.state in ('ready', 'scheduled', 'running')
  order by f.at desc
  limit 1
) f on true
where p.id is null or j.lane is not null
order by p.id desc
