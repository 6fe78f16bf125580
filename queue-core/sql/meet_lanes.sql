-- The lanes ($1 queue, $2 job type, $3 priority)[n], in that order; the time now; the most bytes a payload may have in this store; and whether
-- one of the queues has a capacity.
-- Lanes that cannot be seen are written.
-- $1 queues  $2 job types  $3 priorities, each pair of them at most once  $4 whether jobs are written next, whatever capacity there is
-- Safe: queue.meet_lane waits for nobody; written twice, a lane is the same, and rolled back, it takes nothing from others. The transaction has
-- a number by the end of this, so that no lane goes that was seen here; but none for what may be refused yet, and is then asked again.
select array(
    select queue.meet_lane(l.queue, l.job_type, l.priority, false)
    from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::smallint[]))
      with ordinality l (queue, job_type, priority, place)
    order by l.place  -- guard: in the order asked for [place => place desc]
  ) as lanes,
  pg_catalog.clock_timestamp() as now,
  queue.payload_limit() as payload_limit,
  -- redundant: asks whether there is a capacity [exists .. [])) => false] (for speed: many jobs are refused before they are written)
  exists (select from queue.capacity c where c.queue = any ($1::pg_catalog.text[])) as has_capacity,
  case when $4 or not exists (select from queue.capacity c where c.queue = any ($1::pg_catalog.text[])) then
    -- guard: whoever meets lanes has a number [pg_catalog.pg_current_xact_id()::pg_catalog.text => null]
    pg_catalog.pg_current_xact_id()::pg_catalog.text
  end as number
