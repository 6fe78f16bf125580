-- Returns the limits, ordered by name. See queue.limits.
-- $1 maximum number of ready jobs counted per limit
-- Safe: read-only.
select l.name, l.concurrency, l.starts, l.period_ms, l.burst, l.keyed, l.by_operator, l.reason, l.since, l.set_by, l.code_concurrency,
  l.code_starts, l.code_period_ms, l.code_burst, l.in_code, l.used, l.waiting, l.partial, l.next_ms, l.awaits
from queue.limits($1) l
