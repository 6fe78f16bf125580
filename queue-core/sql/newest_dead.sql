-- Returns the latest dead letters, each with the beginning of its error.
-- $1 maximum number of dead letters
-- Safe: read-only.
select d.id, d.died_at, l.queue, queue.type_of(l.job_type) as job_type, pg_catalog.left(d.error, 500) as error
from (select n.id, n.died_at, n.lane, n.error from queue.dead n order by n.died_at desc limit $1) d
cross join lateral (select k.queue, k.job_type from queue.lane k where k.lane = d.lane limit 1) l
