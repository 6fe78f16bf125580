-- What the parts of one chunk came to, in their order: state, attempts, output as JSON text, error. The state is null of one that is gone.
-- $1 parent  $2 the step  $3 which chunk
select u.id, e.state, e.attempts, e.output::pg_catalog.text as output,
  case when e.state = 'cancelled' then (select f.error from queue.failure f where f.id = u.id order by f.at desc limit 1) else e.error end as error
from queue.brood b
cross join lateral pg_catalog.unnest(b.ids) with ordinality u (id, place)
left join lateral queue.entry_of(u.id) e on true
where b.parent = $1 and b.name = $2 and b.chunk = $3
order by u.place
