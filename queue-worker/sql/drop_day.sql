-- Drops the oldest day partition whose retention has passed, and moves its unfinished jobs. Returns whether a partition was dropped. See
-- queue.worker_drop_day.
-- $1 retention in seconds
select queue.worker_drop_day($1 * interval '1 second') is not null
