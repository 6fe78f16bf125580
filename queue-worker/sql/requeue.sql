-- dead -> ready: those of the jobs $1 that are dead letters, to the end of their own lanes with no attempt and no crash; returns each with its
-- queue. Their failures stay.
-- $1 ids
-- Safe: only what is deleted from dead here enters ready. A second operator waits for the row, finds it gone and does nothing, as does a
-- discard; a claim sees the job at our commit. Rows are locked in the order of their ids. A job under suspicion leaves its solo lane: the
-- operator says that it is mended.
with held as materialized (
  select d.id
  from queue.dead d
  where d.id = any ($1)
  order by d.id
  for update
), risen as materialized (
  delete from queue.dead d
  using held h
  cross join lateral (select j.lane from queue.job j where j.id = h.id offset 0) j
  where d.id = h.id
  returning d.id, j.lane
), entered as (
  insert into queue.ready (lane, seq, id)
  select r.lane, queue.next_id(), r.id
  from risen r
  order by r.id
)
select r.id, l.queue
from risen r
cross join lateral (select l.queue from queue.lane l where l.lane = r.lane limit 1) l
