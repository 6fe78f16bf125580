-- schedule: resumes the schedule $1.
-- $1 name
-- Safe: changes one row. A schedule that is not paused is unchanged.
select queue.resume_schedule($1)::text = '' as resumed
