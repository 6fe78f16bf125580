-- Finds missing day partitions, unattached tables that have a partition's name, rows of current days in default partitions, and too many
-- days of history. Returns one row per unattached table, and one row per other kind of finding.
-- $1 schema  $2 number of days ahead that must have partitions  $3 number of days ahead for which workers create partitions
-- $4 number of days of history above which a finding is returned
-- Safe: read-only. Reads one end of one index per default partition.
with day as materialized (
  select d.n, p.parent, p.parent || '_' || to_char((clock_timestamp() at time zone 'UTC')::date + d.n, 'YYYYMMDD') as name
  from generate_series(0, $3::int) d (n)
  cross join unnest(array['job', 'done', 'done_many', 'failure', 'step']) p (parent)
), found as materialized (
  select d.n, d.parent, d.name, c.oid is not null as is_there, i.inhrelid is not null as is_attached
  from day d
  left join pg_catalog.pg_class c on c.relname = d.name::name
    and c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1::name)
  left join pg_catalog.pg_inherits i on i.inhrelid = c.oid
    and i.inhparent = (select t.oid from pg_catalog.pg_class t where t.relname = d.parent::name and t.relnamespace = c.relnamespace)
), lowest as materialized (
  select (date_part('epoch', ((clock_timestamp() at time zone 'UTC')::date - 1)::timestamp at time zone 'UTC') * 1000)::bigint << 20 as id
)
select 'days_missing' as kind, format('there is no partition for %s', string_agg(f.name, ', ' order by f.name)) as message,
  format('select queue.add_days(%s)', $3) as fix, jsonb_build_object('missing', jsonb_agg(f.name order by f.name)) as facts
from found f
where not f.is_there and f.n <= $2::int
having count(*) > 0
union all
select 'day_planted', format('%s has the name of a partition but is not one: the partition cannot be created', f.name),
  format('alter table %I.%I rename to %I; select queue.add_days(%s)', $1, f.name, substr('not_' || f.name, 1, 60), $3),
  jsonb_build_object('table', f.name)
from found f
where f.is_there and not f.is_attached
union all
select 'default_rows', format('%s has rows of current days', string_agg(r.name, ', ' order by r.name)), null,
  jsonb_build_object('tables', jsonb_agg(r.name order by r.name))
from (
  select 'job_default' where exists (select 1 from queue.job_default d where d.id >= (select l.id from lowest l))
  union all
  select 'done_default' where exists (select 1 from queue.done_default d where d.id >= (select l.id from lowest l))
  union all
  select 'done_many_default' where exists (select 1 from queue.done_many_default d where d.first_id >= (select l.id from lowest l))
  union all
  select 'failure_default' where exists (select 1 from queue.failure_default d where d.id >= (select l.id from lowest l))
  union all
  select 'step_default' where exists (select 1 from queue.step_default d where d.id >= (select l.id from lowest l))
) r (name)
having count(*) > 0
union all
select 'many_days', format('there are %s days of history: a statement over all of them locks up to %s tables and indexes, and all '
    'sessions together have room for %s locks (max_locks_per_transaction)', count(*), min(p.parts), min(p.locks)), null,
  jsonb_build_object('days', count(*), 'parts', min(p.parts), 'locks', min(p.locks))
from pg_catalog.pg_inherits i
cross join (
  select (select count(*) from pg_catalog.pg_class c where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = $1::name)
      and c.relispartition) as parts,
    current_setting('max_locks_per_transaction')::bigint
      * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) as locks
) p
where i.inhparent = 'queue.job'::regclass
having count(*) > $4::int
