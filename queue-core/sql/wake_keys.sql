-- Notifies idle workers that jobs of ordering keys may be able to run.
-- Safe: the last statement of an enqueue. Its snapshot is newer than the written jobs.
select queue.wake_keys()
