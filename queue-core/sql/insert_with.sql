-- nothing -> ready | scheduled | blocked: enqueues a batch of jobs, in the caller's transaction. Some of the jobs have ordering or
-- fairness keys, metadata or an expiry. Returns the ids of the jobs in the given order. The ids are ascending.
-- $1 payloads  $2 lanes  $3 max_attempts  $4 run at, or null for now
-- $5 options, or null; only queue, key, key_policy, fair, meta and system are read  $6 expires at, or null for never
-- Safe: see insert_all.sql. The caller has locked the ordering keys, so the jobs of a key are ordered by commit. The statement writes one
-- hint for each key, so that a worker later unblocks the key's first job.
with reserved as materialized (
  select array(
    select queue.next_id()
    from (select pg_catalog.generate_series(1, pg_catalog.cardinality($1::pg_catalog.jsonb[]))) n
    order by 1
  ) as ids
), entries as materialized (
  select e.id, e.lane, e.max_attempts, e.run_at, e.expires_at, e.place,
    case when e.expires_at is not null then queue.with_expiry(s.system, e.expires_at) else s.system end as system, o.meta,
    queue.key_id(o.queue, o.key) as key, queue.fair_id_of(o.fair) as fair_id
  from reserved r
  cross join lateral rows from (
    pg_catalog.unnest(r.ids), pg_catalog.unnest($2::bigint[]), pg_catalog.unnest($3::smallint[]),
    pg_catalog.unnest($4::pg_catalog.timestamptz[]), pg_catalog.unnest($5::pg_catalog.jsonb[]), pg_catalog.unnest($6::pg_catalog.timestamptz[])
  ) with ordinality e (id, lane, max_attempts, run_at, options, expires_at, place)
  cross join lateral pg_catalog.jsonb_to_record(coalesce(e.options, '{}'))
    o (queue pg_catalog.text, key pg_catalog.text, key_policy pg_catalog.text, fair pg_catalog.text, meta pg_catalog.jsonb,
      system pg_catalog.jsonb)
  cross join lateral (
    select case when o.key is not null and o.key_policy operator(pg_catalog.=) 'skip'
      then coalesce(o.system, '{}') operator(pg_catalog.||) '{"skips": true}' else o.system end as system
  ) s
), stored as (
  insert into queue.job (id, lane, max_attempts, payload, key, meta, system, fair_id)
  select e.id, e.lane, e.max_attempts, ($1)[e.place], e.key, queue.checked_meta(e.meta),
    queue.checked_meta(e.system), e.fair_id
  from entries e
), readied as (
  insert into queue.ready (lane, seq, id)
  select e.lane, e.id, e.id
  from entries e
  where e.key is null and e.run_at is null and e.fair_id is null
), fair_jobs as materialized (
  select e.id, e.lane, e.fair_id, pg_catalog.row_number() over (order by e.place) as nth
  from entries e
  where e.fair_id is not null and e.key is null and e.run_at is null
), places as materialized (
  select array(select queue.next_id() from fair_jobs order by 1) as seqs
), met as materialized (
  select k.lane, queue.ensure_fair_lane(k.lane) as paired from (select distinct l.lane from fair_jobs l) k
), fair_entries as (
  insert into queue.ready (lane, seq, id, fair_id)
  select coalesce(m.paired, queue.paired_lane(l.lane)), p.seqs[l.nth], l.id, l.fair_id
  from fair_jobs l
  cross join places p
  left join met m on m.lane operator(pg_catalog.=) l.lane
), put_off as (
  insert into queue.scheduled (run_at, id, lane)
  select e.run_at, e.id, e.lane
  from entries e
  where e.key is null and e.run_at is not null
), queued_up as (
  insert into queue.blocked (key, seq, id, lane, run_at)
  select e.key, queue.next_key(), e.id, e.lane, e.run_at
  from (select e.* from entries e order by e.place) e
  where e.key is not null
), hinted as (
  insert into queue.key_hint (key)
  select distinct e.key
  from entries e
  where e.key is not null
), expiries as materialized (
  select pg_catalog.array_agg(e.expires_at) as at, pg_catalog.array_agg(e.id) as ids
  from entries e
  where e.expires_at is not null
)
select r.ids, case when x.ids is not null then queue.insert_expiries(x.at, x.ids) end
from reserved r
cross join expiries x
