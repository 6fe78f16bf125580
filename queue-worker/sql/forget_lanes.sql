-- lane (leaving) -> nothing: deletes lane rows whose scan is complete and found no job. Returns the number of deleted rows. If a lane has
-- a job, records the current time as the last use of its row. If the scan of a lane is not complete, records $4 as its position.
-- $1 lanes  $2 transactions that marked the rows, from due_lanes.sql  $3 whether each lane has jobs  $4 last id scanned
-- Safe: the transactions that used the row for an enqueue ended before the scan. Later transactions ignore the marked row, and insert a
-- new row.
with input as materialized (
  select distinct v.lane, v.leaving, v.used
  from unnest($1::bigint[], $2::text[], $3::boolean[]) v (lane, leaving, used)
), held as materialized (
  select l.ctid as at, s.used, l.above
  from input s
  join queue.lane l on l.lane = s.lane and l.leaving::text = s.leaving
  where l.above is not null
  for update of l skip locked
), deleted as (
  delete from queue.lane
  where ctid = any (array(
    select h.at
    from held h
    where not h.used and h.above <= $4
  ))
  returning 1
), noted as (
  update queue.lane l
  set since = case when h.used then now() else l.since end, walked = case when h.used then 0 else greatest(l.walked, $4) end
  from held h
  where l.ctid = h.at and l.ctid = any (array(select n.at from held n where n.used or n.above > $4))
)
select count(*) from deleted
