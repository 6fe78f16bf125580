-- blocked -> ready | scheduled: moves the heads of up to $2 keys with hints at or above the floor $1. Returns the number of consumed hints, the
-- lowest hint, the number of moved jobs, and whether to run again immediately. Also returns the time in ms until the first scheduled job is due,
-- the jobs that were set aside, and whether there are hints of ends, of gathers, of signals and of nodes.
-- $1 floor  $2 maximum number of hints  $3 floor of the hints of ends  $4 of gathers  $5 of signals  $6 of nodes
-- Safe: queue.unblock runs two statements in one transaction, the second with a newer snapshot, and never waits for a lock. A key has only one
-- head, because keys are unique in active_key. Runs with synchronous_commit=off: if a crash loses the commit, the hints still exist.
select u.hints, u.lowest, u.moved, u.more, u.wait_ms, u.aside,
  exists (select from (select h.seq from queue.end_hint h where h.seq >= $3 order by h.seq limit 1) h) as ends,
  exists (select from (select h.seq from queue.gather_hint h where h.seq >= $4 order by h.seq limit 1) h) as gathers,
  exists (select from (select h.seq from queue.signal_hint h where h.seq >= $5 order by h.seq limit 1) h) as signals,
  exists (select from (select h.seq from queue.node_hint h where h.seq >= $6 order by h.seq limit 1) h) as nodes
from queue.unblock($1, $2) u
