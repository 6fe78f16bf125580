-- lane, leaving -> nothing: of the rows ($1 lane, $2 transaction in which it began to leave), those of which there is no job ($3), looked for up
-- to the id $4; returns how many. Others are noted as looked through so far, or, if there is such a job, as used now.
-- $1 lanes  $2 transactions, of due_lanes.sql  $3 whether there are jobs  $4 the last id that was looked at
-- Safe: whoever enqueued by such a row was over before the jobs were looked through. Whoever comes later does not see it, and writes another.
with said as materialized (
  select distinct v.lane, v.leaving, v.used
  from unnest($1::bigint[], $2::text[], $3::boolean[]) v (lane, leaving, used)
), held as materialized (
  select l.ctid as at, s.used, l.above
  from said s
  join queue.lane l on l.lane = s.lane and l.leaving::text = s.leaving
  where l.above is not null
  for update of l skip locked
), gone as (
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
select count(*) from gone
