-- Selects the next ready jobs that match a filter, after the given position. The jobs are sorted by lane and position, so repeated calls
-- read each entry once.
-- $1 to $8 as in choose_blocked.sql  $9 lane and $10 seq after which to continue  $11 priority of the jobs to skip, or null
-- Safe: read-only. The operation for which the jobs are selected is fenced separately.
with chosen as materialized (
  select distinct l.lane
  from queue.lane l
  where l.lane >= $9 and ($1::text is null or l.queue = $1) and ($2::text[] is null or queue.type_of(l.job_type) = any ($2))
    and ($11::smallint is null or l.priority <> $11)
)
select c.lane, r.seq, r.id
from (select c.lane from chosen c order by c.lane) c
cross join lateral (
  select r.seq, r.id
  from queue.ready r
  where r.lane = c.lane and r.seq > case when c.lane > $9 then -9223372036854775808 else $10 end and r.id < $3
    and ($4::float8 is null or r.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
    and ($5::float8 is null or r.id >= queue.id_at(pg_catalog.clock_timestamp() - $5 * interval '1 second'))
    and ($7::jsonb is null or (select j.meta from queue.job j where j.id = r.id) operator(pg_catalog.@>) $7)
    and ($6::text is null or pg_catalog.strpos(
      (select f.error from queue.failure f where f.id = r.id order by f.at desc limit 1), $6) > 0)
  order by r.seq
  limit $8
) r
-- Sorts by the lane of `chosen` instead of the lane of `ready`, so that the scan stops once it has enough jobs.
order by c.lane, r.seq
limit $8
