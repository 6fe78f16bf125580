-- Why a job is not running: the causes, the most likely first, with where the job is; see queue.why.
-- $1 id
-- Safe: it only reads, and waits for nobody.
select w.kind, w.says, w.facts, w.job, pg_catalog.clock_timestamp() as at
from queue.why($1) with ordinality w (kind, says, facts, job, nth)
order by w.nth
