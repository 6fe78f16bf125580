-- ready | scheduled | blocked -> done, expired: all jobs that did not start in time. In a test.
-- Safe: see queue.expire_due.
select e.expired from queue.expire_due('-infinity', 1000000) e
