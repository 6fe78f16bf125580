-- Selects the next running jobs that match a filter, after the given id.
-- $1 to $8 as in choose_blocked.sql  $9 id after which to continue
-- Safe: read-only. The operation for which the jobs are selected is fenced separately.
select u.id
from queue.lease h
cross join lateral pg_catalog.unnest(h.ids) u (id)
where u.id > $9 and u.id < $3
  and ($4::float8 is null or u.id < queue.id_at(pg_catalog.clock_timestamp() - $4 * interval '1 second'))
  and ($5::float8 is null or u.id >= queue.id_at(pg_catalog.clock_timestamp() - $5 * interval '1 second'))
  and ($1::text is null and $2::text[] is null
    or (select j.lane from queue.job j where j.id = u.id) in (
      select l.lane from queue.lane l where ($1::text is null or l.queue = $1) and ($2::text[] is null or queue.type_of(l.job_type) = any ($2))
    ))
  and ($7::jsonb is null or (select j.meta from queue.job j where j.id = u.id) operator(pg_catalog.@>) $7)
  and ($6::text is null or pg_catalog.strpos((select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1), $6) > 0)
order by u.id
limit $8
