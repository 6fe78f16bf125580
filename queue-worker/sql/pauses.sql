-- What is paused, and up to which pause the worker has said that nothing of it begins there; one row if nothing is.
-- $1 worker
-- Safe: it only reads. Pauses become visible in the order of their numbers, so whoever has seen one has seen all before it.
select coalesce((select w.paused_seen from queue.worker w where w.id = $1), 0) as seen, p.id, p.queue, p.job_type
from (select) one
left join queue.paused p on true
