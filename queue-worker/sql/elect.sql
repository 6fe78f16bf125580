-- declaration -> schedule: puts the declarations of live workers in force, and withdraws schedules that no live worker has declared for
-- a lease duration. Returns the name and the outcome of each affected schedule.
-- Safe: each schedule is changed separately, and only if its definition is unchanged since it was read.
select e.name, e.became
from queue.elect_schedules() e
