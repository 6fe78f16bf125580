-- The jobs of an ordering key that are not over, in its order: the one whose turn it is, or the dead one that holds it up, and those behind it;
-- see queue.key_line.
-- $1 queue  $2 key  $3 how many at most
-- Safe: it only reads, a row of an index for each.
select f.id, f.queue, f.job_type, f.priority, f.state, f.attempts, f.max_attempts, f.crashes, f.run_at, f.finished_at, f.ran_ms, f.worker,
  f.cancelling, f.error, null::pg_catalog.jsonb as output, null::pg_catalog.jsonb as payload, f.meta, f.system, f.version
from queue.key_line($1, $2, $3) l
cross join lateral queue.reader_find(l.id) f
order by l.seq
