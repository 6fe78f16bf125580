-- Whether any schedule has ticks: for workers that see to none. Reads one index entry.
select exists (
  select
  from queue.schedule s
  where s.paused_at is null and s.withdrawn_at is null and s.error is null
)
