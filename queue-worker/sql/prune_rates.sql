-- rate -> nothing: deletes start times that no window of a limit includes any more.
-- Safe: deletes only times that are older than the longest window of their limit plus a second, which claims do not count.
delete from queue.rate r
where r.at_ms < queue.clock_ms() - 1000 - coalesce((select max(b.period_ms) from queue.bound b where b.gate = r.gate), 0)
