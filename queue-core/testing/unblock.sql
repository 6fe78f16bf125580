-- blocked -> ready | scheduled, parked -> ready: every head of a key that is free, and what has a signal that it waits for. In a test.
-- Safe: see queue.unblock and queue.wake_parked.
select from queue.unblock(0, 1000000), queue.wake_parked(0, 1000000)
