-- schedule -> nothing: deletes the schedule $1. Returns whether the schedule existed.
-- $1 name
-- Safe: deletes one row. If a worker has locked the row, the worker fires the schedule's tick before the row is deleted.
select queue.unschedule($1)
