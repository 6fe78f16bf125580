-- Notifies idle workers that jobs of ordering keys may be able to run.
-- Safe: a separate statement, whose snapshot is newer than the written jobs.
select queue.wake_keys()
