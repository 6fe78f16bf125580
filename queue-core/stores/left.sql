-- How many jobs of a tenant go on by themselves in a store: all but those that are over and dead letters. Reads all that waits or runs there.
-- Written for the store's schema, and not for that of placements.
-- $1 metadata of its jobs
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
