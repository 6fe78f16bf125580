-- One job as its producer sees it: its state, its attempts, its last error, its output. No row when it is not there.
-- $1 id
-- Safe: one snapshot, in which it has one entry. A job of which no other table has an entry is ready, so ready itself, which is not ordered by
-- id, is not read.
select coalesce(e.state, 'ready') as state, coalesce(e.attempts, 0::smallint) as attempts, e.output::text as output,
  coalesce(
    e.error,
    (select f.error from queue.failure f where f.id = $1 and e.state is distinct from 'completed' order by f.at desc limit 1)
  ) as error
from queue.job j
left join lateral (
  select case when d.cancelled then 'cancelled' else 'completed' end as state, d.attempts, null::text as error, d.output
  from queue.done d
  where d.id = $1
  union all
  select 'completed', 1::smallint, null, null
  from queue.done_many m
  where m.first_id between ($1 >> 33) << 33 and $1 and m.last_id >= $1 and $1 = any (m.ids)
  union all
  select 'dead', d.attempts, d.error, null
  from queue.dead d
  where d.id = $1
  union all
  select 'scheduled', s.attempts, null, null
  from queue.scheduled s
  where s.id = $1
  union all
  select 'blocked', 0::smallint, null, null
  from queue.blocked b
  where b.key = j.key and b.id = $1
  union all
  select 'running', u.attempts, null, null
  from queue.lease h
  cross join lateral rows from (pg_catalog.unnest(h.ids), pg_catalog.unnest(h.attempts)) u (id, attempts)
  where $1 = any (h.ids) and u.id = $1
  limit 1
) e on true
where j.id = $1
