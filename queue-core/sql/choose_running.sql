-- The next $7 running jobs after the id $6, of the queue $1 and the job types $2 (null for any), enqueued below the id $3 and at least $4 seconds
-- ago, and whose last failed attempt's error contains $5. Changes nothing: what is then done with them is fenced by itself.
-- $1 queue  $2 job types  $3 below this id  $4 age  $5 error  $6 id  $7 how many at most  $8 younger than so many seconds  $9 in their metadata
select u.id
from queue.lease h
cross join lateral pg_catalog.unnest(h.ids) u (id)
where u.id > $6 and u.id < $3
  and ($4::float8 is null or u.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($8::float8 is null or u.id >= queue.id_at(pg_catalog.clock_timestamp() - $8 * interval '1 second'))
  and ($1::text is null and $2::text[] is null
    or (select j.lane from queue.job j where j.id = u.id) in (
      select l.lane from queue.lane l where ($1::text is null or l.queue = $1) and ($2::text[] is null or l.job_type = any ($2))
    ))
  and ($9::jsonb is null or (select j.meta from queue.job j where j.id = u.id) @> $9)
  and ($5::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1), $5) > 0)
order by u.id
limit $7
