-- Drops the oldest partition whose retention has passed, and moves its live jobs. Returns whether there was one. See queue.worker_drop_day.
-- $1 retention in seconds
select queue.worker_drop_day($1 * interval '1 second') is not null
