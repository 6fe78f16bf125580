-- schedule -> nothing: deletes the schedule $1. Returns whether the schedule existed.
-- $1 name
-- Safe: deletes one row. A worker that has the row locked fires its tick first, or finds the row deleted.
select queue.unschedule($1)
