-- key_hint | end_hint | gather_hint | signal_hint | node_hint, looked at: what other sessions have locked of what the jobs of the first hints wait
-- for, rows first, then tables against writers; of each the table, the session, and one such job.
-- Safe: it only reads; who has a row is told by the number of a transaction that stands in it. It waits only for tables locked against readers.
with hinted (id, of, held) as materialized (
  select b.id, b.tableoid, b.xmax
  from (select k.key, k.after from queue.key_hint k order by k.seq limit 50) h
  cross join lateral (select b.id, b.tableoid, b.xmax from queue.blocked b where b.key = h.key and b.seq > h.after order by b.seq limit 1) b
  union all
  select u.id, c.tableoid, c.xmax
  from (select e.ids from queue.end_hint e order by e.seq limit 5) h
  cross join lateral unnest(h.ids) u (id)
  left join lateral (select c.tableoid, c.xmax from queue.child c where c.id = u.id offset 0) c on true
  union all
  select g.parent, g.tableoid, g.xmax
  from (select h.parent, h.name from queue.gather_hint h order by h.seq limit 50) h
  cross join lateral (select g.parent, g.tableoid, g.xmax from queue.gather g where g.parent = h.parent and g.name = h.name offset 0) g
  union all
  select p.id, p.tableoid, p.xmax
  from (select h.parent, h.name from queue.gather_hint h order by h.seq limit 50) h
  cross join lateral (
    select p.id, p.tableoid, p.xmax from queue.gather_part p where p.parent = h.parent and p.name = h.name and p.held order by p.nr limit 10
  ) p
  union all
  select s.id, null, null from (select s.id from queue.signal_hint s order by s.seq limit 50) s
  union all
  select e.target, e.tableoid, e.xmax
  from (select n.id from queue.node_hint n order by n.seq limit 50) h
  cross join lateral (select e.target, e.tableoid, e.xmax from queue.edge e where e.source = h.id limit 50) e
), rows (id, of, held) as (
  select h.id, h.of, h.held from hinted h
  union all
  select h.id, r.of, r.held
  from (select distinct h.id from hinted h) h
  cross join lateral (
    select j.tableoid, j.xmax from queue.job j where j.id = h.id
    union all
    select p.tableoid, p.xmax from queue.parked p where p.id = h.id
    union all
    select p.tableoid, p.xmax from queue.gather_part p where p.id = h.id
    union all
    select n.tableoid, n.xmax from queue.node n where n.id = h.id
    union all
    select g.tableoid, g.xmax from queue.gather g where g.parent = h.id
  ) r (of, held)
), locked (id, of, pid, nr) as (
  select r.id, r.of, (s.one ->> 'pid')::integer, 1
  from rows r
  cross join lateral jsonb_array_elements(queue.why_held(r.of, r.held)) s (one)
  where r.held <> '0'
  union all
  select h.id, l.relation, l.pid, 2
  from (select min(h.id) as id from hinted h) h
  join pg_catalog.pg_locks l on h.id is not null
  join pg_catalog.pg_class c on c.oid = l.relation
  where l.locktype = 'relation'
    and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    and c.relnamespace = (select s.relnamespace from pg_catalog.pg_class s where s.oid = 'queue.lease'::pg_catalog.regclass)
)
select c.relname::text as relation, l.pid, a.usename::text as role, a.application_name as application, min(l.id) as job
from locked l
join pg_catalog.pg_class c on c.oid = l.of
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
-- An autovacuum gives way to sessions that wait for it. It has no role.
where l.pid is distinct from pg_catalog.pg_backend_pid() and (a.pid is null or a.usesysid is not null)
group by l.nr, c.relname, l.pid, a.usename, a.application_name
order by l.nr, c.relname
limit 20
