-- rate -> nothing: deletes start times outside every window of their limit.
-- Safe: deletes only times older than the limit's longest window plus a second. Claims do not count such times.
delete from queue.rate r
where r.at_ms < queue.clock_ms() - 1000 - coalesce((select max(b.period_ms) from queue.bound b where b.gate = r.gate), 0)
