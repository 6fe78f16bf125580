-- job, looked at: the lanes of the next $3 jobs after the id $1, up to the id $2; and the last of them, or null if there are no more.
-- $1 after this id  $2 up to this one  $3 how many
-- Safe: it only reads.
select case when count(*) = $3 then max(p.id) end as last, coalesce(array_agg(distinct p.lane), '{}') as lanes
from (
  select j.id, j.lane
  from queue.job j
  where j.id > $1 and j.id <= $2
  order by j.id
  limit $3
) p
