-- Returns one row for each tenant that is being moved, longest-running move first. `store` is the new store, and `leaves` is the old
-- store. If there are more moves than the maximum, each pair of stores gets the same share, so moves that cannot proceed do not hide
-- others.
-- $1 maximum number of moves
select m.key, m.store, m.epoch, m.leaves, m.is_fenced, m.moved_at
from (
  select p.*, row_number() over (partition by p.leaves, p.store order by p.moved_at, p.key) as nth
  from queue.place p
  where p.leaves is not null
  order by nth, p.moved_at, p.key
  limit $1
) m
order by m.moved_at, m.key
