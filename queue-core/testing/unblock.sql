-- blocked -> ready | scheduled, parked -> ready: the heads of all free keys, and jobs with a signal that they wait for. In a test.
-- Safe: see queue.unblock and queue.wake_parked.
select from queue.unblock(0, 1000000), queue.wake_parked(0, 1000000)
