-- ready | scheduled | blocked -> done, expired: all jobs that have not begun in time. In a test.
-- Safe: see queue.expire_due.
select e.expired from queue.expire_due('-infinity', 1000000) e
