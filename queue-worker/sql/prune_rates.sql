-- rate -> nothing: deletes start times that are outside of every window of their limit.
-- Safe: deletes only times that are older than the longest window of their limit plus a second. Claims do not count such times.
delete from queue.rate r
where r.at_ms < queue.clock_ms() - 1000 - coalesce((select max(b.period_ms) from queue.bound b where b.gate = r.gate), 0)
