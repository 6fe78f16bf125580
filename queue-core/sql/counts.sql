-- How many jobs each queue and job type has in each state; see queue.counts.
-- $1 how many entries of a kind are counted, or null for all  $2 of how many queues and types, or null for all
-- Safe: it only reads.
select c.queue, c.job_type, c.state, c.jobs, c.partial
from queue.counts($1, $2) c
