-- Returns the fairness keys that have a weight, with their job types.
-- $1 job type, or null for all
-- Safe: read-only.
select w.job_type, w.fair, w.weight
from queue.weight w
where $1::pg_catalog.text is null or w.job_type = $1
order by w.job_type, w.fair
