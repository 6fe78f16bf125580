-- rate -> nothing: deletes start times that are older than their limit's longest window.
-- Safe: claims do not count such times. Start times are kept for one second longer than the window.
delete from queue.rate r
where r.at_ms < queue.clock_ms() - 1000 - coalesce((select max(b.period_ms) from queue.bound b where b.limit_id = r.limit_id), 0)
