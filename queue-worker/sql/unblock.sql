-- blocked -> ready | scheduled: moves the heads of up to $2 keys with hints at or above the floor $1. Returns the number of consumed hints, the
-- lowest hint, the number of moved jobs, whether to run again immediately, the time in ms until the first job that was scheduled is due, the jobs
-- that were set aside, and whether there are hints of ends, of gathers, of signals, and of nodes.
-- $1 floor  $2 maximum number of hints  $3 floor of the hints of ends  $4 of gathers  $5 of signals  $6 of nodes
-- Safe: queue.unblock runs two statements in one transaction, the second with a newer snapshot, and waits for no lock. A key has one head because
-- it is unique in active_key. Runs with synchronous_commit=off: if a crash loses the commit, the hints are still there.
select u.hints, u.lowest, u.moved, u.more, u.wait_ms, u.aside,
  exists (select from (select h.seq from queue.end_hint h where h.seq >= $3 order by h.seq limit 1) h) as ends,
  exists (select from (select h.seq from queue.gather_hint h where h.seq >= $4 order by h.seq limit 1) h) as gathers,
  exists (select from (select h.seq from queue.signal_hint h where h.seq >= $5 order by h.seq limit 1) h) as signals,
  exists (select from (select h.seq from queue.node_hint h where h.seq >= $6 order by h.seq limit 1) h) as nodes
from queue.unblock($1, $2) u
