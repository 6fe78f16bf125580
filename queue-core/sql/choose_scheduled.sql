-- The next $8 scheduled jobs after the id $7, of the queue $1 and the job types $2 (null for any) and not of priority $6, enqueued below the id $3
-- and at least $4 seconds ago, and whose last failed attempt's error contains $5. Changes nothing: what is then done with them is fenced by itself.
-- $1 queue  $2 job types  $3 below this id  $4 age  $5 error  $6 priority  $7 id  $8 how many at most
-- $9 younger than so many seconds  $10 in their metadata
select s.id
from queue.scheduled s
where s.id > $7 and s.id < $3
  and ($4::float8 is null or s.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($9::float8 is null or s.id >= queue.id_at(pg_catalog.clock_timestamp() - $9 * interval '1 second'))
  and ($1::text is null and $2::text[] is null and $6::smallint is null
    or s.lane in (
      select l.lane
      from queue.lane l
      where ($1::text is null or l.queue = $1) and ($2::text[] is null or l.job_type = any ($2)) and ($6::smallint is null or l.priority <> $6)
    ))
  and ($10::jsonb is null or (select j.meta from queue.job j where j.id = s.id) @> $10)
  and ($5::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = s.id order by f.at desc limit 1), $5) > 0)
order by s.id
limit $8
