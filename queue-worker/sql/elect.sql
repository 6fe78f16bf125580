-- declaration -> schedule: puts the schedules that live workers declare into effect, and withdraws schedules that no live worker
-- declares. Returns the name of each affected schedule, and the outcome.
-- Safe: each schedule is changed separately, and only if its definition is unchanged since it was read.
select e.name, e.became
from queue.elect_schedules() e
