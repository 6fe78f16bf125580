-- schedule: the next tick of the one called $1 will have no job; returns the tick.
-- Safe: one row; the tick is that of the row as it is now.
select queue.skip_schedule($1)
