-- Reads all conditions that could end an idle worker's sleep, at minimal cost. Returns whether a lane of the job types $2 and queues $3 was
-- created since the snapshot $1, and the milliseconds until the next job is due by the database's clock (null if no job has a due time).
-- Also returns the last number drawn from id_seq. A change in this number shows that jobs may have become ready, because every insert into
-- ready draws a number or sends a notification. Also returns xmin and xmax of the current snapshot. If $4 is true, also returns the lanes
-- in $5 that hold jobs at or above their floors. If $4 is true and $5 is null, returns whether any lane holds jobs instead. Reads one
-- index entry per lane.
-- $1 snapshot of the last lane query, as text, or null to report a new lane in any case  $2 job types  $3 queues, or null for any
-- $4 whether to probe lanes  $5 lanes, or null if there are too many  $6 floors of the lanes
select
  -- If the snapshot contains ids that this server has not assigned yet, a failover has lost transactions. See lanes.sql.
  coalesce(pg_snapshot_xmax($1::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()), true)
  or exists (
    select from queue.lane b
    where b.born >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(b.born, $1::pg_snapshot)
      -- A lane whose transaction id is not assigned yet was restored from another cluster.
      and b.born < pg_snapshot_xmax(pg_current_snapshot())
      and b.job_type = any ($2) and ($3::text[] is null or b.queue = any ($3))
  ) as born,
  (select extract(epoch from least(
      (select s.run_at from queue.scheduled s order by s.run_at limit 1),
      (select p.run_at from queue.parked p where p.run_at is not null order by p.run_at limit 1)
    ) - pg_catalog.clock_timestamp())::float8 * 1000) as wait_ms,
  (select i.last_value from queue.id_seq i) as given,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xmax,
  case when $4 then array(
    select l.lane from unnest($5::bigint[], $6::bigint[]) l (lane, floor)
    cross join lateral (select r.seq from queue.ready r where r.lane = l.lane and r.seq >= l.floor order by r.seq limit 1) r
  ) end as holding,
  $4 and $5 is null and exists (select from (select r.lane from queue.ready r order by r.lane, r.seq limit 1) r) as any_ready
