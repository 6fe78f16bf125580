-- schedule -> nothing: deletes the schedule $1. Returns whether the schedule existed. Raises an error if workers declare the schedule.
-- $1 name
-- Safe: deletes one row. If a worker is firing a tick of the schedule, the deletion waits for the worker's row lock.
select queue.unschedule($1)
