-- Drops the oldest day whose retention is over, moving what still lives; returns whether there was one. See queue.worker_drop_day.
-- $1 retention in seconds
select queue.worker_drop_day($1 * interval '1 second') is not null
