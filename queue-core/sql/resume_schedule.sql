-- schedule: resumes the schedule $1.
-- $1 name
-- Safe: changes one row. If the schedule is not paused, its ticks do not change.
select queue.resume_schedule($1)::text = '' as resumed
