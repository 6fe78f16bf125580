-- nothing -> place: assigns the tenant $1 to an open store, unless the tenant already has a store. Returns true if the tenant was
-- assigned, otherwise no row. The affected-row count is not used, because a Citus cluster does not report it for this statement.
-- $1 key  $2 store, or null to let the rule $3 choose  $3 rule: hash or fewest
-- Safe: of concurrent calls for a tenant, only the first call assigns a store. The other calls return no row, and their callers then read
-- the assignment.
with chosen as (
  select s.name
  from queue.store s
  where s.is_open and ($2::text is null or s.name = $2)
  order by
    case when $3 = 'fewest' then (select count(*) from queue.place p where p.store = s.name) end,
    -- Rendezvous hashing: the store with the highest weight for this key is chosen. A store that is added later takes over only its share
    -- of new keys.
    hashtextextended($1::text || '/' || s.name, 0) desc
  limit 1
)
insert into queue.place (key, store)
select $1::text, c.name
from chosen c
on conflict (key) do nothing
returning true
