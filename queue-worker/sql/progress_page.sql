-- The next $2 jobs after $1 that have reported, but not within the last minute; for clear_progress.
-- $1 id  $2 how many at most
select p.id
from queue.progress p
where p.id > $1 and p.updated_at < now() - interval '1 minute'
order by p.id
limit $2
