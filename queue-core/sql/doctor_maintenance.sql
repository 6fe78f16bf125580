-- Finds overdue maintenance: audit entries that were not pruned, and metrics that were not rolled up. Returns one row per kind of
-- finding.
-- $1 number of audit entries above which pruning is overdue, including a margin  $2 age of metrics in ms above which a roll-up is overdue
-- Safe: read-only. Reads at most $1 + 1 audit entries, and the oldest row of the metrics that were not rolled up.
select 'many_notes' as kind, format('the audit log has more than %s entries', $1::int) as message,
  'delete ' || 'from queue.audit a where a.id <= (select max(m.id) - 10000 from queue.audit m)' as fix, '{}'::jsonb as facts
from (select from queue.audit limit $1 + 1) a
having count(*) > $1
union all
select 'tallies_waiting',
  format('counts of attempts have not been aggregated since %s', to_char(min(t.at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
  'select queue.roll_up(100000)', jsonb_build_object('since', min(t.at))
from (
  select o.at
  from queue.tallied o
  order by o.at
  limit 1
) t
having min(t.at) < clock_timestamp() - $2::float8 * interval '1 ms'
