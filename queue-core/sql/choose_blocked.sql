-- The next $8 blocked jobs after the place ($6 key, $7 seq), of the queue $1 and the job types $2 (null for any), enqueued below the id $3 and at
-- least $4 seconds ago, and whose last failed attempt's error contains $5. Changes nothing: what is then done with them is fenced by itself.
-- Key by key in the order of places, so that a walk reads each entry once.
-- $1 queue  $2 job types  $3 below this id  $4 age  $5 error  $6 key  $7 seq  $8 how many at most
-- $9 younger than so many seconds  $10 in their metadata
select b.key, b.seq, b.id
from queue.blocked b
where (b.key, b.seq) > ($6, $7) and b.id < $3
  and ($4::float8 is null or b.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($9::float8 is null or b.id >= queue.id_at(pg_catalog.clock_timestamp() - $9 * interval '1 second'))
  and ($1::text is null and $2::text[] is null
    or b.lane in (
      select l.lane
      from queue.lane l
      where ($1::text is null or l.queue = $1) and ($2::text[] is null or l.job_type = any ($2))
    ))
  and ($10::jsonb is null or (select j.meta from queue.job j where j.id = b.id) @> $10)
  and ($5::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = b.id order by f.at desc limit 1), $5) > 0)
order by b.key, b.seq
limit $8
