-- blocked -> ready | scheduled, parked -> ready: releases the first job of each free ordering key, and the jobs that have received an
-- awaited signal. Used in tests.
-- Safe: see queue.unblock and queue.wake_parked.
select from queue.unblock(0, 1000000), queue.wake_parked(0, 1000000)
