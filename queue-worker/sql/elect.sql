-- declaration -> schedule: puts in force what living workers declare, and withdraws what none of them declares. Returns the changes.
-- Safe: each name is changed on its own, and only if the definition in force is still the one that was read.
select e.name, e.became
from queue.elect_schedules() e
