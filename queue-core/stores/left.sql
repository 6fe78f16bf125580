-- Counts the unfinished jobs of a tenant in a store, without dead letters. Reads all waiting and running jobs of the store.
-- Runs in the store's schema, not in that of the placements.
-- $1 metadata of the tenant's jobs
select count(*)
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
