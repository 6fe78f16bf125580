-- The next $9 ready jobs after the place ($7 lane, $8 seq), of the queue $1 and the job types $2 (null for any) and not of priority $6, enqueued
-- below the id $3 and at least $4 seconds ago, and whose last failed attempt's error contains $5. Changes nothing: what is then done with
-- them is fenced by itself. Lane by lane in the order of places, so that a walk reads each entry once.
-- $1 queue  $2 job types  $3 below this id  $4 age  $5 error  $6 priority  $7 lane  $8 seq  $9 how many at most
-- $10 younger than so many seconds  $11 in their metadata
with chosen as materialized (
  select distinct l.lane
  from queue.lane l
  where l.lane >= $7 and ($1::text is null or l.queue = $1) and ($2::text[] is null or l.job_type = any ($2))
    and ($6::smallint is null or l.priority <> $6)
)
select r.lane, r.seq, r.id
from (select c.lane from chosen c order by c.lane) c
cross join lateral (
  select r.lane, r.seq, r.id
  from queue.ready r
  where r.lane = c.lane and (c.lane > $7 or r.seq > $8) and r.id < $3
    and ($4::float8 is null or r.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
    and ($10::float8 is null or r.id >= queue.id_at(pg_catalog.clock_timestamp() - $10 * interval '1 second'))
    and ($11::jsonb is null or (select j.meta from queue.job j where j.id = r.id) @> $11)
    and ($5::text is null or pg_catalog.strpos(
      (select f.error from queue.failure f where f.id = r.id order by f.at desc limit 1), $5) > 0)
  order by r.seq
  limit $9
) r
order by r.lane, r.seq
limit $9
