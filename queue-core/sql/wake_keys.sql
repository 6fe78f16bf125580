-- Notifies idle workers that ordering keys may continue.
-- Safe: the last step of an enqueue, in a statement of its own, whose snapshot is newer than the written jobs.
select queue.wake_keys()
