-- Returns the number of a tenant's unfinished jobs in a store, excluding dead letters, and the ordering keys of these jobs. Scans all
-- waiting and running jobs of the store. Runs in the store's schema, not in the schema of the placement tables.
-- $1 metadata that identifies the tenant's jobs, as a JSON object
select count(*) as jobs, coalesce(array_agg(distinct j.key) filter (where j.key is not null), '{}') as keys
from (
  select r.id from queue.ready r
  union all
  select s.id from queue.scheduled s
  union all
  select b.id from queue.blocked b
  union all
  select p.id from queue.parked p
  union all
  select unnest(l.ids) from queue.lease l
) e
join queue.job j on j.id = e.id
where j.meta @> $1::jsonb
