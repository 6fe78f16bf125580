-- schedule: skips the next tick of the schedule $1, so that the tick enqueues no job. Returns the time of the tick.
-- $1 name
-- Safe: changes one row. The tick is read from the current version of the row.
select queue.skip_schedule($1)
