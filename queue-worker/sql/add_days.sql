-- Creates the partitions of today and of the next $1 days. Returns the number of partitions created. See queue.worker_add_days.
select queue.worker_add_days($1)
