-- Returns whether any schedule is active, that is, neither paused nor withdrawn nor failed. Workers run this statement until they start the
-- schedule loop. Reads one index entry.
select exists (
  select
  from queue.schedule s
  where s.paused_at is null and s.withdrawn_at is null and s.error is null
)
