-- blocked -> ready | scheduled: the heads of up to $2 keys that were left a hint, from the place $1 on; returns how many hints there were,
-- without those that are left, the lowest of them, how many jobs were moved, whether to look again at once, in how many ms the first of those is
-- due that were scheduled, the jobs that were set aside, and whether there are hints of ends, of gathers, of signals, and of nodes.
-- $1 floor  $2 how many hints at most  $3 floor of the hints of ends  $4 of gathers  $5 of signals  $6 of nodes
-- Safe: queue.unblock is two statements of one transaction, the second with a newer snapshot; it waits for nobody, and a key has one head
-- because active_key has it once. Runs with synchronous_commit=off: lost, the hints are there again.
select u.hints, u.lowest, u.moved, u.more, u.wait_ms, u.aside,
  exists (select from (select h.seq from queue.end_hint h where h.seq >= $3 order by h.seq limit 1) h) as ends,
  exists (select from (select h.seq from queue.gather_hint h where h.seq >= $4 order by h.seq limit 1) h) as gathers,
  exists (select from (select h.seq from queue.signal_hint h where h.seq >= $5 order by h.seq limit 1) h) as signals,
  exists (select from (select h.seq from queue.node_hint h where h.seq >= $6 order by h.seq limit 1) h) as nodes
from queue.unblock($1, $2) u
