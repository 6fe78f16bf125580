-- Notifies idle workers that jobs with ordering keys may be able to run.
-- Safe: a separate statement, so its snapshot is taken after the jobs were written.
select queue.wake_keys()
