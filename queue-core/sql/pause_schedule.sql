-- schedule: pauses the schedule $1.
-- $1 name
-- Safe: changes one row. A tick that fires concurrently precedes the pause.
select queue.pause_schedule($1)::text = '' as paused
