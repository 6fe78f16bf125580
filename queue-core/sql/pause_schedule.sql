-- schedule: the one called $1 is paused.
-- Safe: one row; a tick that fires at this moment was before the pause.
select queue.pause_schedule($1)::text = '' as paused
