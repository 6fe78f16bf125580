-- For each queue with ready jobs: since when the first of them has been ready, by the database's clock. Reads one index entry a lane; a place
-- in a lane is an id, and so tells when it was taken.
select w.queue, w.since, extract(epoch from pg_catalog.clock_timestamp() - w.since)::float8 * 1000 as waited_ms
from (
  select l.queue, queue.enqueued_at(pg_catalog.min(r.seq)) as since
  from (select distinct l.lane, l.queue from queue.lane l) l
  cross join lateral (select r.seq from queue.ready r where r.lane = l.lane order by r.seq limit 1) r
  group by l.queue
) w
order by w.since, w.queue
