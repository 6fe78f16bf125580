-- Makes the partitions of today and the next $1 days; returns how many days it made.
select queue.add_days($1)
