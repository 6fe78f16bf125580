-- Selects the next blocked jobs that match a filter, sorted by key and seq. Each call continues after ($9, $10), so repeated calls read
-- each entry once.
-- $1 queue or null  $2 job types or null  $3 exclusive upper bound of the ids  $4 minimum age in seconds  $5 maximum age in seconds
-- $6 text in the error of the last failed attempt  $7 required metadata  $8 maximum number of jobs
-- $9 key and $10 seq after which to continue
-- Safe: read-only. The operation for which the jobs are selected is fenced separately.
select b.key, b.seq, b.id
from queue.blocked b
where (b.key, b.seq) > ($9, $10) and b.id < $3
  and ($4::float8 is null or b.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($5::float8 is null or b.id >= queue.id_at(pg_catalog.clock_timestamp() - $5 * interval '1 second'))
  and ($1::text is null and $2::text[] is null
    or b.lane in (
      select l.lane
      from queue.lane l
      where ($1::text is null or l.queue = $1) and ($2::text[] is null or queue.type_of(l.job_type) = any ($2))
    ))
  and ($7::jsonb is null or (select j.meta from queue.job j where j.id = b.id) operator(pg_catalog.@>) $7)
  and ($6::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = b.id order by f.at desc limit 1), $6) > 0)
order by b.key, b.seq
limit $8
