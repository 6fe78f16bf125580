-- Returns the ids and ordering keys of the jobs that hold keys for a tenant that is moving to this store. Runs in the store's schema, not
-- in the schema of the placement tables.
-- $1 metadata of these jobs, as a JSON object
with lanes as materialized (
  select l.lane from queue.lane l where l.queue = 'tenant:move' and l.job_type = 'tenant:move'
)
select j.id, j.key
from (
  select s.id from queue.scheduled s where s.lane in (select l.lane from lanes l)
  union all
  select b.id from queue.blocked b where b.lane in (select l.lane from lanes l)
  union all
  select r.id from queue.ready r where r.lane in (select l.lane from lanes l)
) e
join queue.job j on j.id = e.id
where j.meta @> $1::jsonb and j.key is not null
