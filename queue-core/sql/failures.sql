-- Returns the latest $2 failed attempts of the job $1, oldest first.
-- $1 id  $2 maximum number of attempts
select f.attempt, f.at, f.ran_ms, f.error
from (
  select f.attempt, f.at, f.ran_ms, f.error
  from queue.failure f
  where f.id = $1
  order by f.at desc, f.attempt desc
  limit $2
) f
order by f.at, f.attempt
