-- progress -> nothing: of the jobs $1, those that were completed or cancelled, expired or were deleted; returns how many.
-- $1 ids
-- Safe: only a row that is as it was when its job was seen to be over. If an operator has brought the job back meanwhile, what its new attempt
-- wrote has another time, and stays. What somebody has locked is cleared later: those who report wait for this. Each question is one of its
-- own, and not an exists, which a plan may answer from all of a table.
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
