-- progress -> nothing: of the jobs $1, those that were completed, cancelled or deleted; returns how many.
-- $1 ids
-- Safe: only a row that is as it was when its job was seen to be over. If an operator has brought the job back meanwhile, what its new attempt
-- wrote has another time, and stays.
with over as materialized (
  select p.id, p.updated_at
  from unnest($1::bigint[]) u (id)
  cross join lateral (select p.id, p.updated_at from queue.progress p where p.id = u.id offset 0) p
  where exists (select from queue.done d where d.id = u.id)
    or exists (
      select
      from queue.done_many m
      where m.first_id between (u.id >> 33) << 33 and u.id and m.last_id >= u.id and u.id = any (m.ids)
    )
    or not exists (select from queue.job j where j.id = u.id)
), cleared as (
  delete from queue.progress p
  using over o
  where p.id = o.id and p.updated_at = o.updated_at
  returning p.id
)
select count(*) from cleared
