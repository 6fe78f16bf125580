-- Returns whether any schedule has ticks. Used by workers that have not started the schedule loop. Reads one index entry.
select exists (
  select
  from queue.schedule s
  where s.paused_at is null and s.withdrawn_at is null and s.error is null
)
