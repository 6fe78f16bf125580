-- Selects the next dead letters that match a filter, after the given id.
-- $1 queue or null  $2 job types or null  $3 exclusive upper bound of the ids
-- $4 minimum and $5 maximum time since death in seconds
-- $6 text in the last error  $7 required metadata  $8 maximum number of jobs  $9 id after which to continue
-- Safe: read-only. The operation for which the jobs are selected is fenced separately.
select d.id
from queue.dead d
where d.id > $9 and d.id < $3
  and ($1::text is null and $2::text[] is null
    or d.lane in (
      select l.lane from queue.lane l where ($1::text is null or l.queue = $1) and ($2::text[] is null or queue.type_of(l.job_type) = any ($2))
    ))
  and ($4::float8 is null or d.died_at <= pg_catalog.now() - $4 * interval '1 second')
  and ($5::float8 is null or d.died_at > pg_catalog.now() - $5 * interval '1 second')
  and ($7::jsonb is null or (select j.meta from queue.job j where j.id = d.id) operator(pg_catalog.@>) $7)
  and ($6::text is null or pg_catalog.strpos(d.error, $6) > 0)
order by d.id
limit $8
