-- Returns the checkpoint of job $1 for a starting attempt. Returns no row or null if the job has written no checkpoint.
-- $1 id
select p.checkpoint::text
from queue.progress p
where p.id = $1
