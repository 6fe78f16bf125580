-- progress -> nothing: deletes the progress of the jobs in $1 that completed, expired, were cancelled or were deleted. Returns the number
-- of deleted rows.
-- $1 ids
-- Safe: deletes only rows that have not changed since this statement found their jobs finished. If an operator has requeued a job in the
-- meantime, the row of the new attempt has another `updated_at` and stays. Locked rows are skipped and left for the next run. If this
-- statement waited for a lock, progress reports would have to wait for the rows that it has already locked. The state of each job is read
-- with scalar subqueries, because the planner may evaluate `exists` with a scan of the whole table.
with seen as materialized (
  select p.id, p.updated_at, coalesce(
    (select true from queue.done d where d.id = u.id limit 1),
    (
      select true
      from queue.done_many m
      where m.first_id >= (u.id >> 33) << 33 and m.first_id <= u.id and m.last_id >= u.id and u.id = any (m.ids)
      limit 1
    ),
    (select false from queue.job j where j.id = u.id limit 1),
    true
  ) as is_over
  from unnest($1::bigint[]) u (id)
  cross join lateral (select p.id, p.updated_at from queue.progress p where p.id = u.id offset 0) p
), cleared as (
  delete from queue.progress
  where ctid = any (array(
    select p.ctid
    from seen s
    cross join queue.progress p
    where p.id = s.id and p.updated_at = s.updated_at and s.is_over
    for update of p skip locked
  ))
  returning id
)
select count(*) from cleared
