-- ready -> lease: claims jobs like claim.sql, but only late jobs. A job is late if its position was already below its lane's floor when
-- it was committed. Claims up to $6 jobs below the floors $4 of the lanes $3, and at most $9 jobs per lane. Scans ranges of blocks of the
-- table ready. Each range starts at a block in $5 and ends before the corresponding block in $8.
-- $1 token  $2 worker  $3 lanes  $4 floors  $5 first block of each range  $6 maximum number of jobs  $7 maximum payload size in bytes
-- $8 block after the last block of each range  $9 maximum number of jobs per lane
-- Safe: see claim.sql. The statement scans blocks instead of an index, because an index scan would step through an unbounded number of
-- dead entries. A row never moves. If a row appears in a block that was already scanned, the row was inserted after that scan, and
-- another scan is pending.
with taken as materialized (
  delete from queue.ready
  where ctid = any (array(
    select p.at
    from (
      select l.at, l.lane, row_number() over (partition by l.lane) as nth
      from unnest($5::bigint[], $8::bigint[]) b (first, beyond)
      cross join lateral (
        select r.ctid as at, r.lane
        from queue.ready r
        where r.ctid >= format('(%s,0)', b.first)::tid
          and r.ctid < format('(%s,0)', b.beyond)::tid
          and r.seq < ($4::bigint[])[array_position($3::bigint[], r.lane)]
        limit greatest($6, 100)
        for update skip locked
      ) l
    ) p
    where exists (select from queue.worker w where w.id = $2 and w.expires_at > now())
      and p.nth <= ($9::int[])[array_position($3::bigint[], p.lane)]
    limit $6
  ))
  returning lane, seq, id, least(attempts + 1, 32767)::smallint as attempts, crashes
), leased as (
  insert into queue.lease (token, worker, lane, ids, attempts, crashes)
  select $1, $2, case when min(lane) = max(lane) then min(lane) end, array_agg(id), array_agg(attempts), array_agg(crashes)
  from (select * from taken order by id) t
  having count(*) > 0
)
select t.lane, t.seq, t.id, t.attempts, t.crashes, j.max_attempts,
  case when octet_length(j.payload) <= $7 then j.payload end as payload, j.key, j.meta::text as meta, j.system::text as system,
  now() as claimed_at
from taken t
left join lateral (
  select j.max_attempts, j.payload::text as payload, j.key, j.meta, j.system
  from queue.job j
  where j.id = t.id offset 0
) j on true
