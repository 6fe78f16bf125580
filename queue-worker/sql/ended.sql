-- done | done_many | dead | nothing, looked at: whether the job $1 was ended by its attempt $2, which began after $3 crashes.
-- $1 id  $2 attempt  $3 crashes
-- Safe: asked after the job was seen to be no longer in its lease. If others took it over, it has one crash more, and so its attempts in
-- history are more too; a job that is nowhere was completed and forgotten.
select
  exists (select from queue.done d where d.id = $1 and d.attempts = $2::smallint and not d.cancelled)
  or $2 = 1 and exists (
    select
    from queue.done_many m
    where m.first_id >= ($1 >> 33) << 33 and m.first_id <= $1 and m.last_id >= $1 and $1 = any (m.ids)
  )
  or exists (select from queue.dead d where d.id = $1 and d.attempts = $2 and d.crashes = $3::smallint)
  or not exists (select from queue.job j where j.id = $1)
