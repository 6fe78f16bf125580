-- Polls the jobs $1 for processes that wait for them. Returns the progress and outcome of each job, or no row if the job does not exist.
-- $1 ids
-- Safe: reads one snapshot, in which each job has one entry, so no job is missed between two states. A result contains up to about 4 MiB of outputs
-- as stored, plus one more output. For the remaining jobs, later is true, and the caller polls them again.
select o.id, o.state, o.attempts, o.error, o.reported, o.updated_at, o.fraction, o.stage, o.counts::text as counts, o.before >= 4194304 as later,
  case when o.before < 4194304 then o.output::text end as output
from (
  select l.*, coalesce(sum(pg_catalog.pg_column_size(l.output)) over (order by l.id rows between unbounded preceding and 1 preceding), 0) as before
  from queue.look($1::bigint[]) l
) o
