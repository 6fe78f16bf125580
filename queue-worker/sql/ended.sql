-- Returns whether the job $1 was ended by its attempt $2, which started after $3 crashes. Reads done, done_many, dead and job.
-- $1 id  $2 attempt  $3 crashes
-- Safe: runs after the job was found to have left its lease. A recovery would have added a crash, and with it an attempt to the history. A job
-- without any row has completed without leaving a record.
select
  exists (select from queue.done d where d.id = $1 and d.attempts = $2::smallint and not d.cancelled)
  or $2 = 1 and exists (
    select
    from queue.done_many m
    where m.first_id >= ($1 >> 33) << 33 and m.first_id <= $1 and m.last_id >= $1 and $1 = any (m.ids)
  )
  or exists (select from queue.dead d where d.id = $1 and d.attempts = $2 and d.crashes = $3::smallint)
  or not exists (select from queue.job j where j.id = $1)
