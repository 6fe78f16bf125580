-- schedule: skips the next tick of the schedule $1, which gets no job. Returns the tick.
-- $1 name
-- Safe: changes one row. The tick is read from the current version of the row.
select queue.skip_schedule($1)
