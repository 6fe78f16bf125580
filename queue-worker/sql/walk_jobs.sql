-- Returns the distinct lanes of the first $3 jobs with ids above $1 and up to $2. Also returns the id of the last job read, or null if
-- there are fewer than $3 such jobs.
-- $1 id to start after  $2 last id  $3 maximum number of jobs
-- Safe: read-only.
select case when count(*) = $3 then max(p.id) end as last, coalesce(array_agg(distinct p.lane), '{}') as lanes
from (
  select j.id, j.lane
  from queue.job j
  where j.id > $1 and j.id <= $2
  order by j.id
  limit $3
) p
