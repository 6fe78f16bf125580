-- Returns the last $2 ticks of the schedule $1 with their outcomes, newest first.
-- $1 name  $2 maximum number of ticks
-- Safe: read-only.
select f.tick, f.fired_at, f.job, f.outcome, f.error
from queue.fire f
where f.name = $1
order by f.tick desc
limit $2
