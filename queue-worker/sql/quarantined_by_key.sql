-- Returns whether any of the first thousand jobs of the quarantine lane $1 can get a permit for its key. Checks only those of the limits
-- $2 that apply per key.
-- $1 lane  $2 ids of the limits
-- Safe: read-only. The claim checks the permits again.
with waiting as materialized (
  select coalesce(j.line, 0) as line
  from (select r.id from queue.ready r where r.lane = $1 order by r.seq limit 1000) r
  left join lateral (select j.line from queue.job j where j.id = r.id offset 0) j on true
), closed as materialized (
  select r.line
  from queue.line_room(
    array(select b.gate from queue.bound_in_force b where b.gate = any ($2) and b.keyed), null, array(select distinct w.line from waiting w)) r
  where r.free <= 0
)
select exists (select from waiting w where w.line not in (select c.line from closed c))
