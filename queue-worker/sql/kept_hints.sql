-- Finds locks of other transactions that block the jobs of the oldest hints. Returns the locked table, the session or prepared
-- transaction, and one blocked job. Row locks come first, then table locks that block writes. Reads key_hint, end_hint, gather_hint,
-- signal_hint and node_hint.
-- Safe: read-only. The transaction id stored in a row identifies the holder of its lock. The statement waits only for tables that are
-- locked against reads.
with hinted (id, of, held) as materialized (
  select b.id, b.tableoid, b.xmax
  from (select k.key, k.after from queue.key_hint k order by k.seq limit 50) h
  cross join lateral (select b.id, b.tableoid, b.xmax from queue.blocked b where b.key = h.key and b.seq > h.after order by b.seq limit 1) b
  union all
  select u.id, r.of, r.held
  from (select e.ids from queue.end_hint e order by e.seq limit 5) h
  cross join lateral unnest(h.ids) u (id)
  cross join lateral (
    select c.tableoid, c.xmax from queue.child c where c.id = u.id
    union all
    select p.tableoid, p.xmax from queue.gather_part p where p.id = u.id
    union all
    select n.tableoid, n.xmax from queue.node n where n.id = u.id
  ) r (of, held)
  union all
  select g.parent, g.tableoid, g.xmax
  from (select h.parent, h.name from queue.gather_hint h order by h.seq limit 50) h
  cross join lateral (select g.parent, g.tableoid, g.xmax from queue.gather g where g.parent = h.parent and g.name = h.name offset 0) g
  union all
  select p.id, r.of, r.held
  from (select h.parent, h.name from queue.gather_hint h order by h.seq limit 50) h
  cross join lateral (
    select p.id, p.tableoid, p.xmax from queue.gather_part p where p.parent = h.parent and p.name = h.name and p.held order by p.nr limit 10
  ) p
  cross join lateral (
    select p.tableoid, p.xmax
    union all
    select k.tableoid, k.xmax from queue.parked k where k.id = p.id
  ) r (of, held)
  union all
  select p.id, p.tableoid, p.xmax
  from (select s.id from queue.signal_hint s order by s.seq limit 50) h
  cross join lateral (select p.id, p.tableoid, p.xmax from queue.parked p where p.id = h.id offset 0) p
  union all
  select e.target, r.of, r.held
  from (select n.id from queue.node_hint n order by n.seq limit 50) h
  cross join lateral (select e.target, e.tableoid, e.xmax from queue.edge e where e.source = h.id limit 20) e
  cross join lateral (
    select e.tableoid, e.xmax
    union all
    select p.tableoid, p.xmax from queue.parked p where p.id = e.target
    union all
    select j.tableoid, j.xmax from queue.job j where j.id = e.target
    union all
    select g.tableoid, g.xmax from queue.gather g where g.parent = e.target
  ) r (of, held)
), locked (of, pid, prepared, id, nr) as (
  select r.of, (s.one ->> 'pid')::integer, s.one ->> 'prepared', r.id, 1
  from (select h.of, h.held, min(h.id) as id from hinted h where h.held <> '0' group by h.of, h.held limit 200) r
  cross join lateral jsonb_array_elements(queue.why_held(r.of, r.held)) s (one)
  union all
  select l.relation, l.pid, null, h.id, 2
  from (select min(h.id) as id from hinted h) h
  join pg_catalog.pg_locks l on h.id is not null
  join pg_catalog.pg_class c on c.oid = l.relation
  where l.locktype = 'relation'
    and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
    and c.relnamespace = (select s.relnamespace from pg_catalog.pg_class s where s.oid = 'queue.lease'::pg_catalog.regclass)
    and c.relname = any (array[
      'key_hint', 'blocked', 'active_key', 'end_hint', 'child', 'gather_part', 'node', 'gather_hint', 'gather', 'parked', 'signal_hint', 'node_hint',
      'edge', 'job', 'ready', 'scheduled', 'expiry', 'dead', 'done', 'failure'])
)
select c.relname::text as relation, l.pid, a.usename::text as role, a.application_name as application, l.prepared,
  coalesce(l.prepared, v.virtualtransaction) as transaction, min(l.id) as job
from locked l
join pg_catalog.pg_class c on c.oid = l.of
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
left join pg_catalog.pg_locks v on v.pid = l.pid and v.locktype = 'virtualxid' and v.mode = 'ExclusiveLock'
-- Excludes autovacuum, which has no role and yields to waiting sessions.
where coalesce(l.pid, 0) <> pg_catalog.pg_backend_pid() and (a.pid is null or a.usesysid is not null)
group by l.nr, c.relname, l.pid, a.usename, a.application_name, l.prepared, v.virtualtransaction
order by l.nr, c.relname
limit 20
