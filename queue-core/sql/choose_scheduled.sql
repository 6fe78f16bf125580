-- Selects the next scheduled jobs that match a filter, after the given id.
-- $1 to $8 as in choose_blocked.sql  $9 id after which to continue  $10 priority of the jobs to skip, or null
-- Safe: read-only. The operation for which the jobs are selected is fenced separately.
select s.id
from queue.scheduled s
where s.id > $9 and s.id < $3
  and ($4::float8 is null or s.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($5::float8 is null or s.id >= queue.id_at(pg_catalog.clock_timestamp() - $5 * interval '1 second'))
  and ($1::text is null and $2::text[] is null and $10::smallint is null
    or s.lane in (
      select l.lane
      from queue.lane l
      where ($1::text is null or l.queue = $1) and ($2::text[] is null or queue.type_of(l.job_type) = any ($2))
        and ($10::smallint is null or l.priority <> $10)
    ))
  and ($7::jsonb is null or (select j.meta from queue.job j where j.id = s.id) operator(pg_catalog.@>) $7)
  and ($6::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = s.id order by f.at desc limit 1), $6) > 0)
order by s.id
limit $8
