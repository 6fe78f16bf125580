-- Returns the id, state, attempts, output (as JSON text) and error of each part of a map batch, in part order. The state is null if the
-- job was deleted.
-- $1 parent  $2 step  $3 batch number
select u.id, e.state, e.attempts, e.output::pg_catalog.text as output,
  case when e.state = 'cancelled' then (select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1) else e.error end as error
from queue.map_batch b
cross join lateral pg_catalog.unnest(b.ids) with ordinality u (id, place)
left join lateral queue.entry_of(u.id) e on true
where b.parent = $1 and b.name = $2 and b.chunk = $3
order by u.place
