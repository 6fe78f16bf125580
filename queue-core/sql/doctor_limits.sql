-- For how long the first ready job that each of these limits covers has waited. Of a limit by key that is the first job of one line.
-- $1 limits  $2 their lines; null of a limit that is not by key
-- Safe: it only reads, an entry a lane that the limit covers.
with fronts as materialized (
  select p.lane, p.seq from queue.passed() p
)
select n.number, extract(epoch from pg_catalog.clock_timestamp() - queue.enqueued_at(f.seq))::float8 * 1000 as waited_ms
from unnest($1::text[], $2::bigint[]) with ordinality n (name, line, number)
cross join lateral (
  select min(r.seq) as seq
  from (
    select distinct l.lane from queue.lane l where queue.covers(n.name, l.queue, l.job_type)
  ) l
  left join fronts p on p.lane = l.lane
  cross join lateral (
    (select r.seq from queue.ready r where n.line is null and r.lane = l.lane and r.seq >= coalesce(p.seq, 0) order by r.seq limit 1)
    union all
    (select r.seq from queue.ready r where r.lane = l.lane and r.line = n.line order by r.seq limit 1)
  ) r
) f
where f.seq is not null
