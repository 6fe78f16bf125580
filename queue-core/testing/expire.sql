-- ready | scheduled | blocked -> done (expired): expires up to a million jobs that did not start in time. Returns the ids of the expired
-- jobs. Used in tests.
-- Safe: see queue.expire_due.
select e.expired from queue.expire_due('-infinity', 1000000) e
