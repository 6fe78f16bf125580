-- lease -> done_many: whole leases of which all that is left completed, at the first attempt and without an output; returns those refused.
-- $1 tokens  $2 the jobs of leases of many lanes  $3 the lane of each  $4 on how many jobs of each lease there are verdicts
-- Safe: a lease goes once, and only its holder knows its token; a recovery that was quicker has deleted it, and then nothing is written. One that
-- lists more or fewer jobs than there are verdicts stays as it is. Its own row says which jobs it holds, in the order of their ids, so a large one
-- of one lane becomes a row of history as it is. Whoever settles names the lanes, which job has too: to look there would open each day that there
-- is. A job without one is an error, and nothing is written.
with gone as materialized (
  delete from queue.lease
  where token = any ($1) and cardinality(ids) = ($4::int[])[array_position($1, token)]
  returning token, lane, ids,
    lane is not null and cardinality(ids) >= 100 and ids[1] >> 33 = ids[cardinality(ids)] >> 33
      and (ids[1] >> 20) / 86400000 = (ids[cardinality(ids)] >> 20) / 86400000 as alike
), plain as (
  select coalesce(g.lane, (select v.lane from unnest($2::bigint[], $3::bigint[]) v (id, lane) where v.id = u.id)) as lane, u.id
  from gone g
  cross join lateral unnest(g.ids) u (id)
  where not g.alike
), finished as (
  insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
  select ids[1], ids[cardinality(ids)], now(), lane, ids
  from gone
  where alike
  union all
  select min(id), max(id), now(), lane, array_agg(id order by id)
  from plain
  group by lane, id >> 33, (id >> 20) / 86400000
)
select t as token
from unnest($1::uuid[]) t
where not exists (select from gone g where g.token = t)
