-- What could end an idle worker's sleep, at the least cost: whether a lane was born, how many ms until the next scheduled job is due, by the
-- database's clock, and the last number given out for an id or a place. Every entry into ready takes one, but for a release, which notifies.
-- $1 snapshot of the last look for lanes, as text; null is for one to be looked for  $2 job types  $3 queues or null for any
select
  -- Transactions of that snapshot are lost: see lanes.sql.
  coalesce(pg_snapshot_xmax($1::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()), true)
  or exists (
    select from queue.lane b
    where b.born >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(b.born, $1::pg_snapshot)
      -- A higher number was restored from another cluster.
      and b.born < pg_snapshot_xmax(pg_current_snapshot())
      and b.job_type = any ($2) and ($3::text[] is null or b.queue = any ($3))
  ) as born,
  (select extract(epoch from s.run_at - pg_catalog.clock_timestamp())::float8 * 1000 from queue.scheduled s order by s.run_at limit 1) as wait_ms,
  (select i.last_value from queue.id_seq i) as given
