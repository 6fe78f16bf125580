-- nothing -> place: assigns a tenant to an open store, unless it has one already.
-- $1 key  $2 the store, null to choose by the rule  $3 the rule: hash or fewest
-- Returns true if the tenant was assigned; a cluster does not count the rows of such a statement.
-- Safe: of concurrent calls, the first wins, and the others read its row.
with chosen as (
  select s.name
  from queue.store s
  where s.is_open and ($2::text is null or s.name = $2)
  order by
    case when $3 = 'fewest' then (select count(*) from queue.place p where p.store = s.name) end,
    -- The store with the highest weight for this key (rendezvous hashing): an additional store takes over only its share of new keys.
    hashtextextended($1::text || '/' || s.name, 0) desc
  limit 1
)
insert into queue.place (key, store)
select $1::text, c.name
from chosen c
on conflict (key) do nothing
returning true
