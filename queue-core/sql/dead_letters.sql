-- The next $4 dead letters after the id $3, of the queue $1 and the job types $2 (null for any), that died at least $5 and less than $6 seconds ago
-- with an error that contains $7 (null for any). Changes nothing: what is then done with them is fenced by itself.
-- $1 queue  $2 job types  $3 id  $4 how many at most  $5 age  $6 younger than so many seconds  $7 error  $8 in their metadata
select d.id
from queue.dead d
where d.id > $3
  and ($1::text is null and $2::text[] is null
    or d.lane in (select l.lane from queue.lane l where ($1::text is null or l.queue = $1) and ($2::text[] is null or l.job_type = any ($2))))
  and ($5::float8 is null or d.died_at <= pg_catalog.now() - $5 * interval '1 second')
  and ($6::float8 is null or d.died_at > pg_catalog.now() - $6 * interval '1 second')
  and ($8::jsonb is null or (select j.meta from queue.job j where j.id = d.id) @> $8)
  and ($7::text is null or pg_catalog.strpos(d.error, $7) > 0)
order by d.id
limit $4
