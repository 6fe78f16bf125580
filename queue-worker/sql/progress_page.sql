-- Returns the next $2 jobs after $1 whose last progress report is older than a minute, for clear_progress.sql.
-- $1 id to start after  $2 maximum number of jobs
select p.id
from queue.progress p
where p.id > $1 and p.updated_at < now() - interval '1 minute'
order by p.id
limit $2
