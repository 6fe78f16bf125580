-- Returns the checkpoint of the job $1, for an attempt that starts. No row, or null, if no checkpoint was written.
-- $1 id
select p.checkpoint::text
from queue.progress p
where p.id = $1
