-- schedule, fire, nothing -> ready | scheduled | blocked: what is due for these schedules, provided that each is as it was seen; returns what came
-- of each tick, and of which of them it is, counted from 1. An item of each array for each schedule:
-- $1 name  $2 its definition  $3 its next tick as seen, or null  $4 ticks as an array's text  $5 enqueue, miss or fail
-- $6 the next tick then, or null  $7 why there is none; or what went wrong, to fail
-- $8 how many ms to wait for a lock
-- Safe: compares and sets under the row's lock, so one caller fires a tick, however many try; one commit with its jobs. What is raised for one of
-- them is undone by itself, and the others are committed.
select d.place, f.tick, f.outcome, f.job, f.why
from unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::timestamptz[], $7::text[])
  with ordinality d (name, definition, seen, ticks, verb, next_at, why, place)
cross join lateral queue.fire_ticks(d.name, d.definition, d.seen, d.ticks::timestamptz[], d.verb, d.next_at, d.why, $8) f
