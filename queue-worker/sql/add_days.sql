-- Makes the partitions of today and the next $1 days; returns how many days it made. See queue.worker_add_days.
select queue.worker_add_days($1)
