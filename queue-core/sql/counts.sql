-- How many jobs each queue and job type has in each state; see queue.counts.
-- $1 how many rows of done are counted  $2 how many of done_many
-- Safe: it only reads.
select c.queue, c.job_type, c.state, c.jobs, c.partial
from queue.counts($1, $2) c
