-- Returns the latest $2 failed attempts of each job in $1, ordered by job id, then oldest first.
-- $1 ids  $2 maximum number of attempts per job
select i.id, f.attempt, f.at, f.ran_ms, f.error
from pg_catalog.unnest($1::bigint[]) i (id)
cross join lateral (
  select f.attempt, f.at, f.ran_ms, f.error
  from queue.failure f
  where f.id = i.id
  order by f.at desc, f.attempt desc
  limit $2
) f
order by i.id, f.at, f.attempt
