-- schedule: pauses the schedule $1.
-- $1 name
-- Safe: changes one row. If a tick is fired concurrently, the pause starts after the tick.
select queue.pause_schedule($1)::text = '' as paused
