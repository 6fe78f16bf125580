-- Creates the day partitions for today and the next $1 days. Returns the number of days for which partitions were created. See
-- queue.worker_add_days.
select queue.worker_add_days($1)
