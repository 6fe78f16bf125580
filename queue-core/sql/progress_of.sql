-- What the job $1 last said of itself. No row when it has said nothing.
-- $1 id
select p.attempt as reported, p.updated_at, p.fraction, p.stage, p.counts::text as counts
from queue.progress p
where p.id = $1
