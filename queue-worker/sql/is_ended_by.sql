-- Returns whether attempt $2 ended the job $1. Reads done, done_many, dead and job.
-- $1 id  $2 attempt  $3 number of crashes before the attempt
-- Safe: runs only after the job has left its lease. A recovery that removes a job from a lease raises the job's crash count, so a dead
-- letter with $3 crashes was not written by a recovery. A job that is no longer in the table job has completed without leaving a record.
select
  exists (select from queue.done d where d.id = $1 and d.attempts = $2::smallint and not d.cancelled)
  or $2 = 1 and exists (
    select
    from queue.done_many m
    where m.first_id >= ($1 >> 33) << 33 and m.first_id <= $1 and m.last_id >= $1 and $1 = any (m.ids)
  )
  or exists (select from queue.dead d where d.id = $1 and d.attempts = $2 and d.crashes = $3::smallint)
  or not exists (select from queue.job j where j.id = $1)
