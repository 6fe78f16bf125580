-- schedule: resumes the schedule $1.
-- Safe: one row; one that is not paused is unchanged.
select queue.resume_schedule($1)::text = '' as resumed
