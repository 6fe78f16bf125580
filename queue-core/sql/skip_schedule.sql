-- schedule: skips the next tick of the schedule $1, which gets no job; returns the tick.
-- Safe: one row; the tick is that of the row's current version.
select queue.skip_schedule($1)
