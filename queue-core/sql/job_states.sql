-- Returns the progress and outcome of each job in $1, for a caller that waits for the jobs. A job that does not exist has no row.
-- $1 ids
-- Safe: reads one snapshot, in which each job has one entry, so a job that changes its state is not missed. Returns outputs in the order
-- of the ids, until their stored sizes add up to 4 MiB. The output that reaches this limit is still returned. All later rows have `later`
-- set and no output, and the caller polls their jobs again.
select o.id, o.state, o.attempts, o.error, o.reported, o.updated_at, o.fraction, o.stage, o.counts::text as counts, o.before >= 4194304 as later,
  case when o.before < 4194304 then o.output::text end as output
from (
  select l.*, coalesce(sum(pg_catalog.pg_column_size(l.output)) over (order by l.id rows between unbounded preceding and 1 preceding), 0) as before
  from queue.job_states($1::bigint[]) l
) o
