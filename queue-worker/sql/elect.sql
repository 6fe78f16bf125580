-- declaration -> schedule: puts the declarations of live workers in force, and withdraws schedules that no live worker declares. Returns
-- the name of each changed schedule, and the change.
-- Safe: each schedule is changed separately, and only if its definition is unchanged since it was read.
select e.name, e.became
from queue.elect_schedules() e
