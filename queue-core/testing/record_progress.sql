-- progress: writes the progress and the checkpoint that one attempt reported. Used in tests.
-- $1 id  $2 attempt  $3 fraction  $4 stage  $5 counts as JSON text  $6 checkpoint as JSON text, or null to keep the last checkpoint
-- Safe: the test's transaction has locked the job's row in ready, or has just ended the job.
insert into queue.progress as p (id, attempt, fraction, stage, counts, checkpoint)
values ($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb)
on conflict (id) do update
set attempt = excluded.attempt, updated_at = excluded.updated_at, fraction = excluded.fraction, stage = excluded.stage,
  counts = excluded.counts, checkpoint = coalesce(excluded.checkpoint, p.checkpoint)
