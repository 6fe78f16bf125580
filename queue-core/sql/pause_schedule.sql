-- schedule: pauses the schedule $1.
-- Safe: one row; a tick that fires concurrently precedes the pause.
select queue.pause_schedule($1)::text = '' as paused
