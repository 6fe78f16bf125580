-- progress: writes progress reports of many attempts. Returns the token and job id of each accepted report.
-- $1 tokens  $2 ids  $3 attempts  $4 fractions  $5 stages  $6 counts as JSON text  $7 checkpoints as JSON text, null for none
-- Safe: like a verdict, a report is accepted only while its token identifies a lease that contains the job. A zombie worker writes
-- nothing. The lease stays locked until the commit, so no recovery or verdict comes between this check and the write. Leases are locked
-- in token order, and rows of progress in id order. A report replaces the reports of earlier attempts. A report without a checkpoint
-- keeps the earlier checkpoint.
with input as materialized (
  select *
  from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::float8[], $5::text[], $6::text[], $7::text[])
    s (token, id, attempt, fraction, stage, counts, checkpoint)
), held as materialized (
  select l.token, l.ids
  from queue.lease l
  where l.token = any ($1)
  order by l.token
  for share
), fenced as materialized (
  select s.*
  from input s
  join held h on h.token = s.token and s.id = any (h.ids)
), written as (
  insert into queue.progress as p (id, attempt, fraction, stage, counts, checkpoint)
  select f.id, f.attempt, f.fraction, f.stage, f.counts::jsonb, f.checkpoint::jsonb
  from fenced f
  order by f.id
  on conflict (id) do update
  set attempt = excluded.attempt, updated_at = excluded.updated_at, fraction = excluded.fraction, stage = excluded.stage,
    counts = excluded.counts, checkpoint = coalesce(excluded.checkpoint, p.checkpoint)
)
select f.token, f.id
from fenced f
