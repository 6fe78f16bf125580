-- The checkpoint of the job $1, for an attempt that begins. No row, or null, when none was written.
-- $1 id
select p.checkpoint::text
from queue.progress p
where p.id = $1
