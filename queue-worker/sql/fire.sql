-- schedule, fire, nothing -> ready | scheduled | blocked: the ticks $4 of a schedule, provided that it is as it was seen; returns what came of each.
-- $1 name  $2 its definition  $3 its next tick as seen, or null  $4 ticks  $5 enqueue or miss  $6 the next tick then, or null
-- $7 why there is none
-- Safe: compares and sets under the row's lock, so one caller fires a tick, however many try; one commit with its jobs.
select f.tick, f.outcome, f.job, f.why
from queue.fire_ticks($1, $2, $3, $4, $5, $6, $7) f
