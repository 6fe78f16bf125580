-- schedule: skips the next tick of the schedule $1, so that the tick enqueues no job. Returns the time of the tick.
-- $1 name
-- Safe: changes one row. The statement reads the next tick from the latest version of the row.
select queue.skip_schedule($1)
