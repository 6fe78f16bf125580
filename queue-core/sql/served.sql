-- Returns the one-based array positions of the combinations of queue, job type and version that at least one live worker serves.
-- $1 queues  $2 job types  $3 versions
-- Safe: read-only. A worker whose release does not report job types is assumed to serve all job types.
select a.place
from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::smallint[]))
  with ordinality a (queue, job_type, version, place)
where exists (
  select from queue.worker w
  where w.expires_at > now()
    and (pg_catalog.cardinality(w.queues) = 0 or a.queue = any (w.queues))
    and (w.types is null or queue.stored_type(a.job_type, a.version) = any (w.types))
)
