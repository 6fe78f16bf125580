-- ready | scheduled | blocked -> done, cancelled: those of the jobs $1 that wait; returns them.
-- $1 ids
-- Safe: only what is deleted from ready or scheduled here enters done. A claim passes over a row that we hold; one that came first has
-- deleted it, and we find nothing, as after a promotion or a second operator: the caller then looks where the job is now. A ready job is
-- found by its place, which is its id; only for one that has entered ready a second time, its lane and solo twin are looked
-- through. One that is blocked is only taken out of its key's line; the head frees its key.
with wanted as materialized (
  select j.id, j.lane, j.key, queue.lane_id(l.queue, l.job_type, l.priority, true) as solo
  from queue.job j
  cross join lateral (select l.queue, l.job_type, l.priority from queue.lane l where l.lane = j.lane limit 1) l
  where j.id = any ($1)
), fresh as materialized (
  select w.id
  from wanted w
  join queue.ready r on r.lane = w.lane and r.seq = w.id and r.id = w.id
), elsewhere as materialized (
  select w.id, w.lane, w.solo
  from wanted w
  where not exists (select from fresh f where f.id = w.id)
    and not exists (select from queue.scheduled s where s.id = w.id)
    and (select b.id from queue.blocked b where b.key = w.key and b.id = w.id) is null
    and (select d.id from queue.done d where d.id = w.id) is null
    and not exists (select from queue.dead d where d.id = w.id)
    and not exists (
      select
      from queue.done_many m
      where m.first_id between (w.id >> 33) << 33 and w.id and m.last_id >= w.id and w.id = any (m.ids)
    )
), placed as materialized (
  select w.lane, f.id as seq, f.id
  from fresh f
  join wanted w on w.id = f.id
  union all
  select r.lane, r.seq, r.id
  from elsewhere e
  join queue.ready r on r.lane in (e.lane, e.solo) and r.id = e.id
), unready as materialized (
  delete from queue.ready r
  using placed p
  where r.lane = p.lane and r.seq = p.seq and r.id = p.id
  returning r.id, r.attempts
), unscheduled as materialized (
  delete from queue.scheduled s
  where s.id = any ($1)
  returning s.id, s.attempts
), unblocked as materialized (
  delete from queue.blocked b
  where b.ctid = any (array(
    select l.at
    from wanted w
    cross join lateral (select k.ctid as at from queue.blocked k where k.key = w.key and k.id = w.id offset 0) l
  ))
  returning b.id
), called_off as materialized (
  select id, attempts from unready
  union all
  select id, attempts from unscheduled
  union all
  select id, 0 from unblocked
), freed as (
  delete from queue.active_key a
  using wanted w
  join called_off c on c.id = w.id
  where a.key = w.key and a.id = w.id
  returning a.key, a.seq
), hinted as (
  insert into queue.key_hint (key, after)
  select f.key, f.seq
  from freed f
)
insert into queue.done (id, finished_at, ran_ms, attempts, cancelled)
select c.id, pg_catalog.now(), 0, c.attempts, true
from called_off c
returning id
