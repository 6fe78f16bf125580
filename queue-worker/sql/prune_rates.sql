-- rate: what no window reaches back to is forgotten.
-- Safe: only times that are over for longer than the longest window of their limit and a second; claims count none of them.
delete from queue.rate r
where r.at_ms < queue.clock_ms() - 1000 - coalesce((select max(b.period_ms) from queue.bound b where b.gate = r.gate), 0)
