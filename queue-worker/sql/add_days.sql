-- Creates the partitions of today and the next $1 days. Returns the number of days created. See queue.worker_add_days.
select queue.worker_add_days($1)
