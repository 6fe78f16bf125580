-- blocked -> ready | scheduled: moves the first blocked job of each freed key. Consumes up to $2 hints at or above the floor $1. Returns
-- the number of consumed hints, the position of the lowest hint (null if there is none), the number of moved jobs, and whether to run
-- again immediately. Also returns the time in ms until the first of the newly scheduled jobs is due, and the jobs that became dead
-- letters because the tables rejected their rows. The last four columns show whether there are end, gather, signal and node hints at or
-- above the floors $3 to $6.
-- $1 floor  $2 maximum number of hints  $3 floor of end hints  $4 floor of gather hints  $5 floor of signal hints  $6 floor of node hints
-- Safe: queue.unblock runs two statements in one transaction, the second with a newer snapshot. It does not wait for locked rows. A key
-- has only one head, because keys are unique in active_key. Runs with synchronous_commit=off: if a crash loses the commit, the hints still
-- exist.
select u.hints, u.lowest, u.moved, u.more, u.wait_ms, u.aside,
  exists (select from (select h.seq from queue.end_hint h where h.seq >= $3 order by h.seq limit 1) h) as ends,
  exists (select from (select h.seq from queue.gather_hint h where h.seq >= $4 order by h.seq limit 1) h) as gathers,
  exists (select from (select h.seq from queue.signal_hint h where h.seq >= $5 order by h.seq limit 1) h) as signals,
  exists (select from (select h.seq from queue.node_hint h where h.seq >= $6 order by h.seq limit 1) h) as nodes
from queue.unblock($1, $2) u
