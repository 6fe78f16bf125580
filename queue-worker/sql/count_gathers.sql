-- Counts the parts that are over of gathers, by up to $2 hints from the place $1 on; returns how many hints there were, without those that are left,
-- the lowest of them, how many parts that waited were made ready, and whether to
-- look again at once.
-- $1 floor  $2 how many hints at most
-- Safe: queue.count_gathers is several statements of one transaction, each with a newer snapshot; it waits for nobody. Runs with
-- synchronous_commit=off: lost, the hints are there again.
select c.hints, c.lowest, c.moved, c.hints >= $2 or c.moved >= $2 as more
from queue.count_gathers($1, $2) c
