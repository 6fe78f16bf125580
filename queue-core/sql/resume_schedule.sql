-- schedule: the one called $1 goes on.
-- Safe: one row; one that is not paused stays as it is.
select queue.resume_schedule($1)::text = '' as resumed
