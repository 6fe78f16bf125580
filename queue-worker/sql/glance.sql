-- What could end an idle worker's sleep: whether a lane holds jobs or was born, and how many ms until the next scheduled job is due, by the
-- database's clock. One index entry a lane; with too many lanes to ask, one for all.
-- $1 lanes, null when there are too many  $2 their floors  $3 snapshot of the last look for lanes, as text  $4 job types  $5 queues or null for any
select
  exists (
    select from unnest($1::bigint[], $2::bigint[]) l (lane, floor)
    cross join lateral (select r.seq from queue.ready r where r.lane = l.lane and r.seq >= l.floor order by r.seq limit 1) r
  )
  or ($1 is null and exists (select from (select r.lane from queue.ready r order by r.lane, r.seq limit 1) r))
  or exists (
    select from queue.lane b
    where b.born >= pg_snapshot_xmin($3::pg_snapshot) and not pg_visible_in_snapshot(b.born, $3::pg_snapshot)
      and b.job_type = any ($4) and ($5::text[] is null or b.queue = any ($5))
  ) as any,
  (select extract(epoch from s.run_at - pg_catalog.clock_timestamp())::float8 * 1000 from queue.scheduled s order by s.run_at limit 1) as wait_ms
