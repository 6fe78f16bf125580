-- nothing -> place: puts a tenant into an open store, unless it is somewhere already.
-- $1 key  $2 the store, null for one by the rule  $3 the rule: hash or fewest
-- Returns whether it has; a cluster does not count the rows of such a statement.
-- Safe: of those that do it at once the first is believed, and the others read what it wrote.
with chosen as (
  select s.name
  from queue.store s
  where s.is_open and ($2::text is null or s.name = $2)
  order by
    case when $3 = 'fewest' then (select count(*) from queue.place p where p.store = s.name) end,
    -- The store of most weight for this key: of a store more, only its part of new keys is another's.
    hashtextextended($1::text || '/' || s.name, 0) desc
  limit 1
)
insert into queue.place (key, store)
select $1::text, c.name
from chosen c
on conflict (key) do nothing
returning true
