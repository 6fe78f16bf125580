-- schedule, fire, nothing -> ready | scheduled | blocked: fires the due ticks of each schedule that has not changed since it was read.
-- Returns the outcome of each tick with the position of its schedule, counted from 1. The arrays $1 to $7 have one item per schedule:
-- $1 name  $2 definition  $3 next tick as read, or null  $4 ticks as the text of an array  $5 enqueue, miss or fail
-- $6 following tick, or null  $7 reason why there is no following tick, or the error to record
-- $8 lock timeout in ms, for all schedules
-- Safe: the schedule is compared and updated under its row lock, so only one of several concurrent callers fires a tick. The tick and its
-- job are committed together. If one schedule fails, only its changes are rolled back, and the other schedules are committed.
select d.place, f.tick, f.outcome, f.job, f.why
from unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::timestamptz[], $7::text[])
  with ordinality d (name, definition, seen, ticks, verb, next_at, why, place)
cross join lateral queue.fire_ticks(d.name, d.definition, d.seen, d.ticks::timestamptz[], d.verb, d.next_at, d.why, $8) f
