-- Notifies idle workers that ordering keys may continue.
-- Safe: the last step of an enqueue, in a separate statement whose snapshot is newer than the written jobs.
select queue.wake_keys()
