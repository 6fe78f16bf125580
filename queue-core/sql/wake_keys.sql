-- Tells workers that sleep that ordering keys may go on.
-- Safe: the last act of an enqueue, in a statement of its own: its snapshot is newer than the jobs that were written.
select queue.wake_keys()
