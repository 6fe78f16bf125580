-- lease -> done_many: settles whole leases whose remaining jobs all completed on their first attempt without an output. Returns the
-- rejected tokens.
-- $1 tokens  $2 jobs of leases with several lanes  $3 lane of each job in $2  $4 number of verdicts for each lease
-- Safe: a lease is deleted once, and only its owner knows the token. After a recovery the lease is gone, and nothing is written. A lease
-- with more or fewer jobs than verdicts is left unchanged. A lease row contains its jobs in id order. The ids of a large lease with one
-- lane are therefore copied unchanged to one row of done_many, if their span is allowed in one row. The caller passes the lanes although
-- the table job contains them, because reading that table here would open every daily partition. A job without a lane raises an error,
-- and nothing is written.
with deleted as materialized (
  delete from queue.lease
  where token = any ($1) and cardinality(ids) = ($4::int[])[array_position($1, token)]
  returning token, lane, ids,
    lane is not null and cardinality(ids) >= 100 and ids[1] >> 33 = ids[cardinality(ids)] >> 33
      and (ids[1] >> 20) / 86400000 = (ids[cardinality(ids)] >> 20) / 86400000 as alike
), plain as (
  select coalesce(g.lane, (select v.lane from unnest($2::bigint[], $3::bigint[]) v (id, lane) where v.id = u.id)) as lane, u.id
  from deleted g
  cross join lateral unnest(g.ids) u (id)
  where not g.alike
), finished as (
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select ids[1], ids[cardinality(ids)], now(), lane, ids
  from deleted
  where alike
  union all
  select min(id), max(id), now(), lane, array_agg(id order by id)
  from plain
  group by lane, id >> 33, (id >> 20) / 86400000
)
select t as token
from unnest($1::uuid[]) t
where not exists (select from deleted g where g.token = t)
