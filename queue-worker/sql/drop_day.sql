-- Drops the partitions of the oldest day that is past its retention and nearly empty. Moves the jobs that outlive the day to the default
-- partitions. Returns whether a day was dropped. See queue.worker_drop_day.
-- $1 retention in seconds
select queue.worker_drop_day($1 * interval '1 second') is not null
