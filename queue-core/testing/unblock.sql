-- blocked -> ready | scheduled, parked -> ready: moves the heads of all free keys, and jobs that have received a signal for which they wait. Used
-- in tests.
-- Safe: see queue.unblock and queue.wake_parked.
select from queue.unblock(0, 1000000), queue.wake_parked(0, 1000000)
