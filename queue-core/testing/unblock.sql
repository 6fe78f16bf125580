-- blocked -> ready | scheduled: every head of a key that is free. In a test.
-- Safe: see queue.unblock.
select from queue.unblock(0, 1000000)
