-- place -> place: starts to move every tenant of the store $1 to another open store. Returns the keys of the tenants.
-- $1 store  $2 new store of all tenants, or null to choose each tenant's store by rendezvous hashing of the key
-- Safe: tenants that are already being moved are not changed. Of two concurrent calls, the second finds the moves that the first has
-- started, and changes nothing.
with chosen as (
  select p.key, c.name
  from queue.place p
  cross join lateral (
    select s.name
    from queue.store s
    where s.is_open and s.name <> $1 and ($2::text is null or s.name = $2)
    order by hashtextextended(p.key || '/' || s.name, 0) desc
    limit 1
  ) c
  where p.store = $1 and p.leaves is null
)
update queue.place p
set leaves = p.store, store = c.name, epoch = p.epoch + 1, is_fenced = false, moved_at = now()
from chosen c
where p.key = c.key and p.store = $1 and p.leaves is null
returning p.key
