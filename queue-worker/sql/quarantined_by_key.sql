-- Returns whether any of the first thousand jobs of the quarantine lane $1 can get a permit for its key. Checks only those of the limits
-- $2 that apply per key.
-- $1 lane  $2 ids of the limits
-- Safe: read-only. The claim checks the permits again.
with waiting as materialized (
  select coalesce(j.fair_id, 0) as fair_id
  from (select r.id from queue.ready r where r.lane = $1 order by r.seq limit 1000) r
  left join lateral (select j.fair_id from queue.job j where j.id = r.id offset 0) j on true
), closed as materialized (
  select r.fair_id
  from queue.free_fair_permits(
    array(select b.limit_id from queue.bound_in_force b where b.limit_id = any ($2) and b.keyed), null,
    array(select distinct w.fair_id from waiting w)) r
  where r.free <= 0
)
select exists (select from waiting w where w.fair_id not in (select c.fair_id from closed c))
