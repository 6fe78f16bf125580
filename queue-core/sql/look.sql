-- The jobs $1, looked at by whoever waits for them: how far each is, and what came of it. No row for a job that is not there.
-- $1 ids
-- Safe: one snapshot, in which each job has one entry, so none is missed between two states. An answer has about 4 MiB of outputs as they are
-- stored, and one more: for jobs beyond that, later is true, and they are asked for again.
select o.id, o.state, o.attempts, o.error, o.reported, o.updated_at, o.fraction, o.stage, o.counts::text as counts, o.before >= 4194304 as later,
  case when o.before < 4194304 then o.output::text end as output
from (
  select l.*, coalesce(sum(pg_catalog.pg_column_size(l.output)) over (order by l.id rows between unbounded preceding and 1 preceding), 0) as before
  from queue.look($1::bigint[]) l
) o
