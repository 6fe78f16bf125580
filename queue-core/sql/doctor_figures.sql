-- Whether what workers clean up and add up is: notes of acts, and counts of attempts. A row for each kind.
-- $1 how many notes of acts are kept, with some more  $2 ms after which counts have been added up
-- Safe: it only reads, of each table one end.
select 'many_notes' as kind, format('more than %s acts are noted', $1::int) as says,
  'delete ' || 'from queue.audit a where a.id <= (select max(m.id) - 10000 from queue.audit m)' as fix, '{}'::jsonb as facts
from (select from queue.audit limit $1 + 1) a
having count(*) > $1
union all
select 'tallies_waiting',
  format('counts of attempts wait since %s to be added up', to_char(min(t.at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
  'select queue.roll_up(100000)', jsonb_build_object('since', min(t.at))
from (
  select o.at
  from queue.tallied o
  order by o.at
  limit 1
) t
having min(t.at) < clock_timestamp() - $2::float8 * interval '1 ms'
